package boltstore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestResidentIndexSize: the counted memory of objects includes their values in the
// indices, whether these exist from the beginning or are added later.
func TestResidentIndexSize(t *testing.T) {
	const objects, values = 200, 30
	for name, index := range map[string]cache.IndexFunc{
		"of one object each": func(o any) (all []string, _ error) {
			for i := range values {
				all = append(all, fmt.Sprintf("%s-%030d", o.(*corev1.ConfigMap).Name, i))
			}
			return all, nil
		},
		"of ten objects each": func(o any) (all []string, _ error) {
			for i := range values {
				all = append(all, fmt.Sprintf("%s-%030d", o.(*corev1.ConfigMap).ResourceVersion[:2], i))
			}
			return all, nil
		},
	} {
		for _, late := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", late ", late), func(t *testing.T) {
				o := Options{Durability: DurabilityProcess, ObjectMemory: 1 << 30}
				claim := Claim{Indexers: cache.Indexers{"many": index}, IndexVersions: map[string]string{"many": "1"}}
				first := claim
				if late {
					first.Indexers = nil
				}
				path := testPath(t)
				db := openTest(t, path, o)
				var list []kruntime.Object
				for i := range objects {
					list = append(list, configMap("ns", fmt.Sprint("small", i), 100+i, map[string]string{"a": "b"}))
				}
				relist(t, claimTest(t, db, first), "9000", RelistOptions{}, list, 100)
				closeTest(t, db)
				list = nil
				o.ObjectMemory = -1
				db = openTest(t, path, o)
				claimTest(t, db, first).List()
				before := liveHeap()
				closeTest(t, db)
				o.ObjectMemory = 1 << 30
				db = openTest(t, path, o)
				s := claimTest(t, db, first)
				r := loadedInMemory(t, s)
				if late {
					if err := s.AddIndexers(claim.Indexers); err != nil {
						t.Fatal(err)
					}
					waitBuilt(t, s, "many")
					builtInMemory(s)
				}
				heap := int64(liveHeap() - before)
				t.Logf("%d counted, %d in the heap: estimated %.2f", r.size/objects, heap/objects,
					float64(r.size)/float64(heap))
				if r.size < heap/2 || r.size > heap*4 {
					t.Error("not near")
				}
				sameInMemory(t, s.source)
			})
		}
	}
}
