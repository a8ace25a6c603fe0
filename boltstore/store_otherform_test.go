package boltstore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// otherForm is a codec with another ID.
type otherForm struct{ codec.Codec }

func (otherForm) ID() byte { return 200 }

// TestAnotherForm: objects that were stored with another codec are not decoded. That is no
// damage. They are read again and told as changed. Deletes are told without the last state.
func TestAnotherForm(t *testing.T) {
	own, err := codec.For(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ upgraded, serve bool }{{true, false}, {true, true}, {false, false}, {false, true}} {
		serve := c.serve
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			s := claimTest(t, db, Claim{Codec: otherForm{own}, Indexers: indexers})
			srv := server{}
			srv.set(configMap("a", "keeps", 1, map[string]string{"words": "w"}), configMap("a", "goes", 2, nil))
			relist(t, s, "5", RelistOptions{}, srv.list(), 10)
			if c.upgraded {
				must(t, s.updateMeta(func(_ sourceTx, m *sourceMeta) error {
					m.TypeHash = "of an older build"
					return nil
				}))
			}
			closeTest(t, db)

			db = openTest(t, path, Options{})
			s = claimTest(t, db, Claim{ServeOutdated: serve, Indexers: indexers,
				IndexVersions: map[string]string{"words": "another"}})
			for _, o := range s.List() {
				if o != nil {
					t.Errorf("served %v", o)
				}
			}
			if err := s.Err(); err != nil && !serve || s.Outdated() != OutdatedType {
				t.Errorf("outdated %q, %v", s.Outdated(), err)
			}
			delete(srv, "a/goes")
			relist(t, s, "6", RelistOptions{}, srv.list(), 10)
			told := map[string]cache.DeltaType{}
			for _, e := range journalFrom(t, s, 1) {
				told[e.Key] = e.Type
				if obj, err := e.Object(); err == nil && e.Type == cache.Deleted {
					t.Errorf("%s was deleted as %v", e.Key, obj)
				} else if err != nil && e.Type != cache.Deleted {
					t.Errorf("%s: %v", e.Key, err)
				}
			}
			if len(told) != 2 || told["a/goes"] != cache.Deleted || told["a/keeps"] != cache.Updated {
				t.Fatalf("told %v", told)
			}
			sameObjects(t, "after", srv.anys(), s.List())
			if objs, err := s.ByIndex("words", "w"); err != nil || len(objs) != 1 {
				t.Errorf("%v %v", objs, err)
			}
		})
	}
}
