package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// TestBadSectors: pages of a file can no longer be read. The file is healed, while it is
// open or by the next Open, and what is set aside has holes there or stays as it is. The
// rest is served, and a list brings back what was on the pages. Nothing that is said has
// more than one line, or calls it a nil pointer.
func TestBadSectors(t *testing.T) {
	disk := newBadSectors(t)
	for name, bad := range map[string]func(path string, objects []int) []int{
		"objects":     func(_ string, objects []int) []int { return objects[2:4] },
		"a meta page": func(string, []int) []int { return []int{0} },
		"the other":   func(string, []int) []int { return []int{1} },
		"free pages":  func(path string, _ []int) []int { return []int{freelistPage(t, path)} },
	} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, open %v", name, open), func(t *testing.T) {
				path := filepath.Join(disk.dir, strings.NewReplacer("/", "-", ":", "-").Replace(t.Name()))
				db, s, srv := healableAt(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
				must(t, s.writeMarks()) // both meta pages are of files with the list
				objects := itemPages(t, db)
				if !open {
					closeTest(t, db)
				}
				for _, page := range bad(path, objects) {
					disk.bad(t, path, page)
				}
				if _, err := os.ReadFile(path); !errors.Is(err, syscall.EIO) {
					t.Fatal("the file can be read:", err)
				}
				if !open {
					db = openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
					s = claimTest(t, db, Claim{Indexers: indexers})
				}
				_, err := s.ListErr()
				oneLine(t, err)
				if err := s.Add(configMap("ns", "after", 501, nil)); err != nil {
					t.Error(err)
				}
				if n, got := len(db.AsidePaths()), len(s.List()); n != 1 || got < 300 || db.Err() != nil {
					t.Fatalf("%d files set aside, %d objects, %v", n, got, db.Err())
				}
				srv.set(configMap("ns", "after", 501, nil))
				relist(t, s, "600", RelistOptions{}, srv.list(), 50)
				sameObjects(t, "after a list", srv.anys(), s.List())
				if st, err := os.Stat(db.AsidePaths()[0]); err != nil || st.Size() < 100_000 {
					t.Error("set aside:", st, err)
				}
			})
		}
	}
}

// TestBadSectorStands: there is no room to heal a file with a bad sector. While the
// damage stands, Err names the disk and the cause, and Stats how long, though nothing is
// to be committed.
func TestBadSectorStands(t *testing.T) {
	disk := newBadSectors(t)
	path := filepath.Join(disk.dir, "test.db")
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	full := &failWrites{left: 1 << 30}
	db, s, _ := healableAt(t, path, Options{Clock: clk, op: full.op, ObjectMemory: -1})
	disk.bad(t, path, itemPages(t, db)[2])
	if err := db.Err(); err != nil || db.Stats().Failing != 0 {
		t.Fatal("before it is met:", err)
	}
	full.left = 0
	_, err := s.ListErr()
	oneLine(t, err)
	clk.Step(10 * time.Second)
	for _, word := range []string{path, "the disk fails", errDiskFull.Error()} {
		if err := db.Err(); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), word) {
			t.Errorf("it does not say %q: %v", word, err)
		}
	}
	oneLine(t, db.Err())
	if st := db.Stats(); st.Failing != 10*time.Second {
		t.Error("it has failed for", st.Failing)
	}
	full.left = 1 << 30
	clk.Step(minHeal)
	_, err = s.ListErr()
	oneLine(t, err)
	if n := len(s.List()); n < 300 || db.replaced.Load() != 1 || db.Err() != nil || db.Stats().Failing != 0 {
		t.Errorf("%d objects, %d healings, %v", n, db.replaced.Load(), db.Err())
	}
}

func freelistPage(t *testing.T, path string) int {
	t.Helper()
	f, done, err := pages.Open(path)
	must(t, err)
	defer done()
	return int(f.Freelist())
}

// oneLine fails if err is in more than one line, or speaks of a nil pointer.
func oneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil && (strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "nil pointer")) {
		t.Errorf("it is said so: %v", err)
	}
	t.Log(err)
}
