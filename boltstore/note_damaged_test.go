package boltstore

import (
	"testing"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestDamagedNote: each reader of a damaged note notices the damage, and notes of other
// objects stay visible.
func TestDamagedNote(t *testing.T) {
	for _, how := range []string{"event", "list", "restart", "large list"} {
		t.Run(how, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			bad := []string{"b"}
			s := claimTest(t, db, failing(&bad))
			p := &testProducer{}
			s.Feed.Attach(p)
			objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil),
				configMap("ns", "c", 3, nil)}
			relistSome(t, s, "5", RelistOptions{}, objs)
			event(t, s, p, cache.Updated, configMap("ns", "a", 6, nil), errRefused)
			event(t, s, p, cache.Updated, configMap("ns", "b", 7, nil), errRefused)
			expectNoted(t, "at first", s, "ns/a at 6", "ns/b at 7", "ns/b odd")
			err := db.h.update(func(tx *bolt.Tx) error {
				src, _ := db.h.source(tx, s.id)
				notes := src.contents().Notes()
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
				event(t, s, p, cache.Updated, configMap("ns", "b", 8, nil), nil)
				objs[1] = configMap("ns", "b", 8, nil)
			case "list":
				relistSome(t, s, "10", RelistOptions{Transform: refusing("a")}, objs)
			case "restart":
				s.Release()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = openTest(t, path, Options{})
				s = claimTest(t, db, failing(&bad))
			case "large list":
				setMaxCommitBytes(db, 1)
				objs[2] = configMap("ns", "c", 9, nil)
				relistSome(t, s, "10", RelistOptions{Transform: refusing("a")}, objs)
			}
			if s.Feed.UnstoredObjects() == 0 && s.Err() == nil {
				t.Errorf("%d unstored, %v", s.Feed.UnstoredObjects(), s.Err())
			}
			relistSome(t, s, "11", RelistOptions{}, objs)
			wantsSound(t, "at last", db)
			if s.Feed.UnstoredObjects() != 0 || s.Err() != nil {
				t.Errorf("%d unstored, %v", s.Feed.UnstoredObjects(), s.Err())
			}
			indexAgain(t, s)
			expectNoted(t, "at last", s)
			if v := s.ListIndexFuncValues("odd"); len(v) != 3 {
				t.Errorf("%q", v)
			}
		})
	}
}
