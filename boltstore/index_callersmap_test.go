package boltstore

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestCallersMaps: the caller may use its maps of indexers and versions again, as in
// client-go, even while the index is built.
func TestCallersMaps(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: 1 << 20})
	versions := map[string]string{"words": "1", "late": "1"}
	s := claimTest(t, db, Claim{Indexers: cloneIndexers(), IndexVersions: versions})
	clear(versions)
	must(t, s.Add(at(1, "y")))
	loadedInMemory(t, s)
	late := cache.Indexers{}
	late["late"] = func(o any) ([]string, error) {
		late["other"] = indexers["words"]
		delete(late, "late")
		return indexers["words"](o)
	}
	must(t, s.AddIndexers(late))
	if late["other"] == nil {
		t.Error("the index was not built")
	}
	m := s.metaNow()
	if im := m.Indices["late"]; im.Version != "1" || !im.Complete {
		t.Errorf("%+v", im)
	}
	if _, there := m.Indices["other"]; there {
		t.Error("an index that nobody has added is in the file")
	}
	if keys, err := s.IndexKeys("late", "y"); err != nil || len(keys) != 1 {
		t.Error(keys, err)
	}
}
