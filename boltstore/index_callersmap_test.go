package boltstore

import (
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestCallersMaps: the caller may use its maps of indexers and versions again, as in
// client-go. Once the objects are in memory, the file's index is built later.
func TestCallersMaps(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, ObjectMemory: 1 << 20})
	versions := map[string]string{"words": "1", "late": "1"}
	s := claimTest(t, db, Claim{Indexers: cloneIndexers(), IndexVersions: versions})
	clear(versions)
	must(t, s.Add(at(1, "y")))
	loadedInMemory(t, s)
	s.indexLock.Lock() // the file's index is not built yet
	late := cache.Indexers{"late": indexers["words"]}
	err := s.AddIndexers(late)
	late["other"] = late["late"]
	delete(late, "late")
	s.indexLock.Unlock()
	must(t, err)
	waitBuilt(t, s, "late")
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
