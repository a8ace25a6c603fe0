package boltstore

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// ownCodec is a codec of the program's own.
type ownCodec struct {
	codec.Codec
	id byte
}

func (c ownCodec) ID() byte { return c.id }

// TestAnotherCodec: contents that another codec has stored are not served, also with
// ServeOutdated, and are no damage. What the program then stores is served alone.
func TestAnotherCodec(t *testing.T) {
	own, err := codec.For(&corev1.ConfigMap{})
	must(t, err)
	for _, memory := range []int64{-1, 1 << 20} {
		path, o := testPath(t), Options{ObjectMemory: memory}
		live := func(id byte, serve bool) (*DB, *Claimed) {
			db := openTest(t, path, o)
			return db, claimTest(t, db, Claim{Codec: ownCodec{own, id}, ServeOutdated: serve, Indexers: indexers,
				IndexVersions: map[string]string{"words": string(id)}})
		}
		db, s := live(200, false)
		must(t, s.Add(configMap("a", "one", 1, map[string]string{"words": "w"})))
		closeTest(t, db)
		db, s = live(201, true)
		late := cache.Indexers{"late": indexers["words"]}
		must(t, s.AddIndexers(late))
		keys, err := s.IndexKeys("words", "w")
		if len(s.List()) > 0 || len(keys) > 0 || err != nil || s.Err() != nil {
			t.Errorf("served: %v, index %v, %v, %v", s.List(), keys, err, s.Err())
		}
		must(t, s.Add(configMap("a", "two", 2, map[string]string{"words": "w"})))
		keys, err = s.IndexKeys("late", "w")
		if len(s.List()) != 1 || len(keys) != 1 || keys[0] != "a/two" || err != nil || s.Err() != nil {
			t.Errorf("stored: %v, index %v, %v, %v", s.List(), keys, err, s.Err())
		}
		closeTest(t, db)
	}
}
