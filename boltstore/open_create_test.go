//go:build unix

package boltstore

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestCreatedAtOnce: two processes make the file at the same time. The second one comes
// before any operation of the first, and keeps the file open or closes it. There is one
// file, with all that was written.
func TestCreatedAtOnce(t *testing.T) {
	for _, links := range []bool{true, false} {
		for _, empty := range []bool{true, false} {
			for _, closes := range []bool{true, false} {
				for k := 1; ; k++ {
					path := testPath(t)
					if empty {
						if err := os.WriteFile(path, nil, 0o600); err != nil {
							t.Fatal(err)
						}
					}
					link := func(op string) error {
						if op == "link" && !links {
							return unix.EPERM
						}
						return nil
					}
					var second *DB
					write := func(db *DB, name string) {
						s := claimTest(t, db, Claim{})
						if err := s.Add(configMap("ns", name, 1, nil)); err != nil {
							t.Error(err)
						}
						s.Release()
					}
					n, at := 0, ""
					first, err := Open(path, Options{LockTimeout: -1, op: func(op, _ string) error {
						if n++; n != k {
							return link(op)
						}
						at = fmt.Sprintf("links %v, an empty file %v, the second one closes %v, before "+
							"operation %d, %s", links, empty, closes, n, op)
						db, err := Open(path, Options{LockTimeout: -1, op: func(op, _ string) error {
							return link(op)
						}})
						if err == nil {
							second = db
							write(db, "second")
							if closes {
								closeTest(t, db)
							}
						} else if !errors.Is(err, ErrLocked) {
							t.Errorf("%s: the second one: %v", at, err)
						}
						return link(op)
					}})
					if n < k {
						if err != nil {
							t.Fatal(err)
						}
						closeTest(t, first)
						break
					}
					want := map[string]bool{"ns/second": second != nil}
					switch {
					case err == nil && second != nil && !second.claims.closed:
						t.Errorf("%s: both have it open", at)
					case err == nil:
						write(first, "first")
						want["ns/first"] = true
						closeTest(t, first)
					case !errors.Is(err, ErrLocked) || second == nil || second.claims.closed:
						t.Errorf("%s: the first one: %v", at, err)
					}
					if second != nil {
						closeTest(t, second)
					}
					db := openTest(t, path, Options{})
					s := claimTest(t, db, Claim{})
					for key, there := range want {
						if _, ok, err := s.GetByKey(key); ok != there || err != nil {
							t.Errorf("%s: %s is there: %v %v", at, key, ok, err)
						}
					}
					noLeftovers(t, path)
					closeTest(t, db)
				}
			}
		}
	}
}

// TestCreatedConcurrently is TestCreatedAtOnce with processes that wait for one
// another, in any order.
func TestCreatedConcurrently(t *testing.T) {
	for round := range 20 {
		path := testPath(t)
		o := Options{LockTimeout: time.Minute}
		if round%2 == 0 {
			o.op = func(op, _ string) error {
				if op == "link" {
					return unix.EPERM
				}
				return nil
			}
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				db, err := Open(path, o)
				if err != nil {
					t.Error(err)
					return
				}
				s, err := db.Claim(Claim{Source: configMaps, Example: &corev1.ConfigMap{}})
				if err == nil {
					err = s.Add(configMap("ns", fmt.Sprint("by", i), i+1, nil))
					s.Release()
				}
				if err := errors.Join(err, db.Close()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		db := openTest(t, path, Options{})
		if keys := claimTest(t, db, Claim{}).ListKeys(); len(keys) != 4 {
			t.Fatalf("round %d: of four objects there are %q", round, keys)
		}
		noLeftovers(t, path)
		closeTest(t, db)
	}
}

// TestFileComesWhileOneIsMade: an empty file is at the path, and another program's takes
// its place while Open makes a new one. Open opens that.
func TestFileComesWhileOneIsMade(t *testing.T) {
	skipOpenFiles(t)
	for _, at := range []string{"create", "link", "rename"} {
		for _, plain := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, plain rename: %t", at, plain), func(t *testing.T) {
				path := testPath(t)
				if err := errors.Join(os.WriteFile(path, nil, 0o600),
					os.WriteFile(path+".good", filled(t), 0o600)); err != nil {
					t.Fatal(err)
				}
				done := false
				db, err := Open(path, Options{plainRename: plain, op: func(op, _ string) error {
					if op != at || done {
						return nil
					}
					done = true
					return os.Rename(path+".good", path)
				}})
				if err != nil || !done {
					t.Fatalf("%v; %t", err, done)
				}
				if r, err := db.Check(); err != nil || !r.Sound() || len(r.Sources) != 1 || r.Sources[0].Objects == 0 {
					t.Errorf("%+v %v", r, err)
				}
				if err := db.AtPath(); err != nil {
					t.Error(err)
				}
				closeTest(t, db)
				noLeftovers(t, path)
			})
		}
	}
}
