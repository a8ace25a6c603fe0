package boltstore

import (
	"errors"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestDamagedNote: each reader of a damaged note notices the damage, and notes of other
// objects stay visible.
func TestDamagedNote(t *testing.T) {
	for _, how := range []string{"event", "list", "index", "restart", "staged"} {
		t.Run(how, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			bad := []string{"b"}
			s := claimTest(t, db, failing(&bad))
			p := &testProducer{}
			s.Attach(p)
			objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil), configMap("ns", "c", 3, nil)}
			relistSome(t, s, "5", RelistOptions{}, objs)
			event(t, s, p, cache.Updated, configMap("ns", "a", 6, nil), errRefused)
			expectNoted(t, "at first", s, "ns/a at 6", "ns/b odd")
			err := db.h.update(func(tx *bolt.Tx) error {
				src, _ := db.h.source(tx, s.id)
				notes := src.gen(s.metaNow().Generation).Notes()
				flipNoted(t, notes.Bucket, func(k, v []byte) bool {
					n, err := parseNote(notes.Open(k, v))
					return err == nil && n.Key == "ns/b"
				})
				return nil
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := db.Check(); err != nil || r.Sound() {
				t.Errorf("not noticed: %+v", r)
			}
			bad = nil
			switch how {
			case "event":
				event(t, s, p, cache.Updated, configMap("ns", "b", 7, nil), nil)
				objs[1] = configMap("ns", "b", 7, nil)
			case "list":
				relistSome(t, s, "10", RelistOptions{Transform: refusing("a")}, objs)
			case "index":
				if err := s.indexing().reindexNoted(); err != nil {
					t.Fatal(err)
				}
			case "restart":
				s.Release()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = openTest(t, path, Options{})
				s = claimTest(t, db, failing(&bad))
			case "staged":
				setMaxCommitBytes(db, 1)
				objs[2] = configMap("ns", "c", 9, nil)
				relistSome(t, s, "10", RelistOptions{Transform: refusing("a")}, objs)
			}
			if s.UnstoredObjects() == 0 && s.Err() == nil {
				t.Errorf("%d unstored, %v", s.UnstoredObjects(), s.Err())
			}
			relistSome(t, s, "11", RelistOptions{}, objs)
			wantsSound(t, "at last", db)
			if s.UnstoredObjects() != 0 || s.Err() != nil {
				t.Errorf("%d unstored, %v", s.UnstoredObjects(), s.Err())
			}
			if err := s.indexing().reindexNoted(); err != nil {
				t.Fatal(err)
			}
			expectNoted(t, "at last", s)
			if v := s.ListIndexFuncValues("odd"); len(v) != 3 {
				t.Errorf("%q", v)
			}
		})
	}
}

// TestOwnWriteOverADamagedRecord: the program deletes an object whose record is damaged,
// or stores the server's answer there. The next list tells handlers the object's state or
// its delete.
func TestOwnWriteOverADamagedRecord(t *testing.T) {
	for _, want := range []cache.DeltaType{cache.Deleted, cache.Updated} {
		t.Run(string(want), func(t *testing.T) { ownWriteOverADamagedRecord(t, want) })
	}
}

func ownWriteOverADamagedRecord(t *testing.T, want cache.DeltaType) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)}
	relist(t, s, "5", RelistOptions{}, objs, 5)
	if err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, s.id)
		flipNoted(t, src.gen(s.metaNow().Generation).Items.Bucket, func(k, v []byte) bool {
			key, _, err := s.owner.ParseRecord(k, v)
			return err == nil && key == "ns/a"
		})
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	own, shows := s.Delete, objs[1:]
	if want == cache.Updated {
		own, objs[0], shows = s.Update, configMap("ns", "a", 6, nil), objs
	}
	if err := own(objs[0]); err != nil || s.Err() == nil {
		t.Fatal(err, s.Err())
	}
	relist(t, s, "6", RelistOptions{}, shows, 5)
	if told := journalFrom(t, s, 1); len(told) != 1 || told[0].Type != want || told[0].Key != "ns/a" {
		t.Errorf("told %+v", told)
	}
	wantsSound(t, "at last", db)
}

// TestChangeAfterDamagedBase: the base of an own write is damaged, before the server
// brings the change or other content under its version. Handlers are told the next list's
// state, and readers see it.
func TestChangeAfterDamagedBase(t *testing.T) {
	for _, how := range []string{"claimed", "salvaged", "all gone"} {
		for _, what := range []string{"change", "other content", "new"} {
			t.Run(how+" "+what, func(t *testing.T) {
				f := newOwnTest(t, Options{Durability: DurabilityProcess})
				shows := at(7, "y")
				switch what {
				case "change":
					f.list(5, at(5, "x"))
					f.must(f.s.Update(at(7, "y")))
				case "other content":
					f.list(7, at(7, "y"))
					f.must(f.s.Update(at(7, "mine")))
				case "new":
					f.list(5)
					f.must(f.s.Update(at(7, "y")))
				}
				f.from = f.s.State().Seq + 1
				f.must(f.s.updateMeta(func(src sourceTx, m *sourceMeta) error {
					if how == "all gone" {
						return src.gen(m.Generation).Bucket.DeleteBucket(layout.BucketOwn)
					}
					flipNoted(t, src.gen(m.Generation).Own.Bucket, func(_, _ []byte) bool { return true })
					return nil
				}))
				if how == "salvaged" {
					f.must(f.db.healing().healNow(errors.New("a test")))
				} else {
					f.s.Release()
					f.must(f.db.Close())
					f.open()
				}
				if f.s.Err() == nil {
					t.Fatal("not noticed")
				}
				wantsSound(t, "before the list", f.db)
				f.list(9, shows)
				if err := f.s.Err(); err != nil || f.read() != "7y" || f.replay() != "7y" || f.bases() != 0 || f.s.UnstoredObjects() != 0 {
					t.Fatal(err, f.read(), f.replay(), f.bases(), f.s.UnstoredObjects())
				}
				// Without its key there is no sign of an untold change.
				if got := f.told(); !strings.HasSuffix(got, "7y") && (how != "all gone" || what == "other content") {
					t.Fatalf("told %q", got)
				}
			})
		}
	}
}
