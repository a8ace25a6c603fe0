package boltstore

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestDamagedNoteOfAnOwnWrite: an index lacks an own write whose function failed, and the
// note of that cannot be read. After the list that the damage leads to, and after an
// event beneath the own write, no index that lacks it counts as complete.
func TestDamagedNoteOfAnOwnWrite(t *testing.T) {
	for _, beneath := range []bool{false, true} {
		t.Run(fmt.Sprint("an event beneath it ", beneath), func(t *testing.T) {
			bad, path := []string{"mine"}, testPath(t)
			db := openTest(t, path, Options{ObjectMemory: -1})
			s := claimTest(t, db, failing(&bad))
			p := &testProducer{}
			s.Attach(p)
			objs := []runtime.Object{configMap("ns", "a", 1, nil)}
			relistSome(t, s, "5", RelistOptions{}, objs)
			must(t, s.Update(configMap("ns", "mine", 20, nil)))
			expectNoted(t, "the function fails", s, "ns/mine odd")
			must(t, s.updateMeta(func(src sourceTx, m *sourceMeta) error {
				flipNoted(t, src.gen(m.Generation).Notes().Bucket, func(_, _ []byte) bool { return true })
				return nil
			}))
			if beneath {
				below := configMap("ns", "mine", 8, nil)
				event(t, s, p, cache.Added, below, nil)
				objs = append(objs, below)
			}
			bad = nil
			r := beginStaged(t, s)
			must(t, r.Page(objs))
			_, err := r.Commit("9", time.Now())
			must(t, err)
			wantOne(t, "after the list", s, "odd", "v20")
			waitBuilt(t, s, "odd")
			wantOne(t, "the file has the index", s, "odd", "v20")
			wantsSound(t, "afterwards", db)
			abandon(t, db, s)
			s = claimTest(t, openTest(t, path, Options{ObjectMemory: -1}), failing(&bad))
			wantOne(t, "the next life", s, "odd", "v20")
		})
	}
}
