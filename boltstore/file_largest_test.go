package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"

	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestLargestFile: a program of 32 bits keeps its file below 1 GiB, as if that were its
// MaxSize: it refuses in words what does not fit, and opens the file again. It refuses in
// words a file that it cannot map. A program of 64 bits goes on. `make test` runs this test
// as GOARCH=386, too.
func TestLargestFile(t *testing.T) {
	const narrow = strconv.IntSize == 32
	for _, size := range []int64{1 << 30, 1 << 31, 3 << 30} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			path := testPath(t)
			stored(t, path, 10, 0, Options{})
			pretend(t, path, size-4<<20)
			o := Options{Window: time.Nanosecond, Keyset: sealtest.Default()}
			db, err := Open(path, o)
			if narrow && size > 1<<30 && err != nil { // there may be room for a map of 2 GiB
				if !strings.Contains(err.Error(), "64-bit") || !strings.Contains(err.Error(), path) {
					t.Error(err)
				}
				return
			}
			must(t, err)
			if narrow && size > 1<<31 {
				t.Fatal("it can be mapped")
			}
			n, s := 10, claimTest(t, db, Claim{})
			for ; n < 110 && err == nil; n++ {
				err = s.Add(configMap("a", fmt.Sprint("o", n), n+1,
					map[string]string{"k": strings.Repeat("x", 100<<10)}))
			}
			if err != nil {
				n--
			}
			if refused := errors.Is(err, berrors.ErrMaxSizeReached) &&
				strings.Contains(err.Error(), "64-bit"); refused != narrow || !refused && err != nil {
				t.Fatalf("object %d: %v", n, err)
			}
			if got, err := s.ListErr(); err != nil || len(got) != n {
				t.Fatalf("%d of %d objects, %v", len(got), n, err)
			}
			must(t, db.Close())
			db, err = Open(path, o)
			must(t, err)
			if got, err := claimTest(t, db, Claim{}).ListErr(); err != nil || len(got) != n ||
				len(db.AsidePaths()) > 0 {
				t.Errorf("opened again: %d of %d objects, %v", len(got), n, err)
			}
			must(t, db.Close())
		})
	}
}

// pretend gives a file a size. bbolt takes all of it for pages that were used once.
func pretend(t *testing.T, path string, size int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	o, b := binary.NativeEndian, make([]byte, 64)
	for page := range int64(2) {
		at := page*int64(os.Getpagesize()) + 16
		_, err := f.ReadAt(b, at)
		must(t, err)
		o.PutUint64(b[40:], uint64(size)/uint64(os.Getpagesize()))
		sum := fnv.New64a()
		sum.Write(b[:56])
		o.PutUint64(b[56:], sum.Sum64())
		_, err = f.WriteAt(b, at)
		must(t, err)
	}
	must(t, f.Truncate(size))
}
