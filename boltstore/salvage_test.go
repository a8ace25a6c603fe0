package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// onlyFile fails the test if there is anything beside the file except the given files
// that were set aside.
func onlyFile(t *testing.T, path string, aside ...string) {
	t.Helper()
	if files := filesIn(t, filepath.Dir(path)); !slices.Equal(files, append([]string{path}, aside...)) {
		t.Errorf("there are %q", files)
	}
}

// failWrites is a disk that can be written, or get a new name, n times.
type failWrites struct{ left int }

var errDiskFull = errors.New("the disk is full")

func (f *failWrites) op(name, _ string) error {
	if name != "write" && name != "rename" {
		return nil
	}
	if f.left--; f.left < 0 {
		return errDiskFull
	}
	return nil
}

// TestNoRoomToOpen: a damaged file stays if its replacement cannot be written, and
// nothing is left beside it. When there is room, all of its content is there.
func TestNoRoomToOpen(t *testing.T) {
	path := testPath(t)
	srv := stored(t, path, 300, 3, Options{})
	changeHeader(t, path, ofUncleanBoot)
	for writes := 0; ; writes++ {
		disk := &failWrites{left: writes}
		db, err := Open(path, Options{op: disk.op, Keyset: sealtest.Default()})
		if err == nil {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
			if disk.left < 0 {
				t.Fatal("opened, and not all could be written")
			}
			if writes < 4 {
				t.Fatalf("%d writes and names", writes)
			}
			break
		}
		if !errors.Is(err, errDiskFull) {
			t.Fatal(err)
		}
		onlyFile(t, path)
	}
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	sameObjects(t, "after", srv.anys(), s.List())
	if len(db.AsidePaths()) > 0 || s.Err() != nil {
		t.Error(db.AsidePaths(), s.Err())
	}
}

// TestNoRoomToHeal: an open file stays, too, even if only the rename fails, and no copies
// pile up. Its sources can be written, and it is healed later.
func TestNoRoomToHeal(t *testing.T) {
	path := testPath(t)
	stored(t, path, 400, 1, Options{})
	disk := &failWrites{left: 1 << 30}
	db := openTest(t, path, Options{Window: time.Nanosecond, op: disk.op})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	leaves := itemPages(t, db)
	ruin(t, path, leaves[len(leaves)/2])
	n := 0
	for writes := range 100 {
		db.heals.mu.Lock()
		db.heals.last = time.Time{} // more than a minute ago
		db.heals.mu.Unlock()
		disk.left = writes
		if _, err := s.ListErr(); !errors.Is(err, ErrDamaged) {
			t.Fatal(err)
		}
		if n = len(db.AsidePaths()); n > 0 {
			if writes < 4 {
				t.Fatalf("%d writes and names", writes)
			}
			break
		}
		onlyFile(t, path)
		p.add(t, s, configMap("ns", fmt.Sprint("after", writes), 99999+writes, nil))
		p.wait(t)
	}
	if n != 1 {
		t.Fatalf("%d files were set aside", n)
	}
	disk.left = 1 << 30
	p.add(t, s, configMap("ns", "last", 999999, nil))
	p.wait(t)
	if got := len(s.ListKeys()); got < 300 || db.Err() != nil {
		t.Fatalf("%d objects, %v", got, db.Err())
	}
}

// TestJournalGap: the log reports a gap in the journal, and that plain handlers may
// miss deletes if they had not been told all of it.
func TestJournalGap(t *testing.T) {
	for _, told := range []bool{false, true} {
		t.Run(fmt.Sprint("told: ", told), func(t *testing.T) {
			path := testPath(t)
			o := Options{decrypt: true} // the place depends on the names
			srv := stored(t, path, 20, 150, o)
			if told {
				s := claimTest(t, openTest(t, path, o), Claim{})
				s.SetTold(s.State().Seq)
				s.Release()
				closeTest(t, s.db)
			}
			f, done, err := pages.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer done()
			journal := bucketAt(t, f, layout.BucketSources, []byte(configMaps.ID()), layout.BucketJournal)
			rewritePage(t, path, f, journal.Root, func(p pages.Page, b []byte) {
				if p.Flags != pages.Branch || p.Count < 3 {
					t.Fatalf("%+v", p)
				}
				ruin(t, path, int(binary.NativeEndian.Uint64(b[pages.HeadSize+16+8:])))
			})
			var lines []string
			log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			o.Logger = &log
			s := claimTest(t, openTest(t, path, o), Claim{})
			sameObjects(t, "after", srv.anys(), s.List())
			all := strings.Join(lines, "\n")
			if !strings.Contains(all, "are missing") || strings.Contains(all, "plain handlers") == told {
				t.Error(all)
			}
		})
	}
}
