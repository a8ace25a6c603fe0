package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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

// saved closes db, saves what verifies into another file, as Open does with a damaged one,
// and opens that.
func saved(t *testing.T, db *DB) *DB {
	t.Helper()
	closeTest(t, db)
	must(t, salvageAt(db.path, db.opts))
	return openTest(t, db.path, db.opts)
}

func salvageAt(path string, o Options) error {
	db, err := newDB(path, o.withDefaults())
	if err == nil {
		db.judged.file, err = os.Stat(path)
	}
	if err == nil {
		err = db.converting().readKeyset()
	}
	if err == nil {
		err = db.opening().replace(fmt.Errorf("%w: said the test", ErrDamaged))
	}
	return err
}

// trips has db meet damage in the pages, ends it as if it were killed, and opens the file
// again.
func trips(t *testing.T, db *DB) *DB {
	t.Helper()
	_ = db.h.noted(fmt.Errorf("%w: said the test", errTripped))
	killed(t, db)
	return openTest(t, db.path, db.opts)
}

// killed ends db as a kill does: nothing more is written.
func killed(t *testing.T, db *DB) {
	t.Helper()
	must(t, db.h.swap(nil).Close())
	_ = db.Close() // its goroutines
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
				s.Delivery.SetTold(s.State().Seq)
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
