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

	"github.com/kubewake/kubewake/boltstore/internal/pages"
)

// TestBadSectors: pages of a file can no longer be read, from before it is opened or while it
// is open. Then the next Open saves the rest, and a list brings back what was on the pages.
// A copy that is set aside, where there are no links, has holes. Nothing that is said has more
// than one line, or calls it a nil pointer.
func TestBadSectors(t *testing.T) {
	disk := newBadSectors(t)
	o := Options{Window: time.Nanosecond, ObjectMemory: -1}
	for name, bad := range map[string]func(path string, objects []int) []int{
		"objects":     func(_ string, objects []int) []int { return objects[2:4] },
		"a meta page": func(string, []int) []int { return []int{0} },
		"the other":   func(string, []int) []int { return []int{1} },
		"free pages":  func(path string, _ []int) []int { return []int{freelistPage(t, path)} },
	} {
		for _, open := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, open %v", name, open), func(t *testing.T) {
				path := filepath.Join(disk.dir, strings.NewReplacer("/", "-", ":", "-").Replace(t.Name()))
				db := openTest(t, path, o)
				s, srv := listed400(t, db)
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
				if open {
					_, err := s.ListErr()
					oneLine(t, err)
					oneLine(t, s.Add(configMap("ns", "never", 501, nil)))
					if text := fmt.Sprint(db.Err()); !strings.Contains(text, path) ||
						!strings.Contains(text, "cannot be read") {
						t.Errorf("it does not say what cannot be read: %s", text)
					}
					oneLine(t, db.Err())
					nothingIsWritten(t, db, s)
					killed(t, db)
				}
				noLinks := o
				noLinks.op = func(op, _ string) error {
					if op == "link" {
						return syscall.EPERM
					}
					return nil
				}
				db = openTest(t, path, noLinks)
				s = claimTest(t, db, Claim{Indexers: indexers})
				must(t, s.Add(configMap("ns", "after", 501, nil)))
				if n, got := len(db.AsidePaths()), len(s.List()); n != 1 || got < 300 || db.Err() != nil {
					t.Fatalf("%d files set aside, %d objects, %v", n, got, db.Err())
				}
				if st, err := os.Stat(db.AsidePaths()[0]); err != nil || st.Size() < 100_000 {
					t.Error("set aside:", st, err)
				}
				srv.set(configMap("ns", "after", 501, nil))
				relist(t, s, "600", RelistOptions{}, srv.list(), 50)
				sameObjects(t, "after a list", srv.anys(), s.List())
			})
		}
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
