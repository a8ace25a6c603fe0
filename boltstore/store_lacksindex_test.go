package boltstore

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestIndexThatTheProgramLacks: the file keeps an index that the program does not use.
// Calls of it answer as client-go's: the program has no such index.
func TestIndexThatTheProgramLacks(t *testing.T) {
	path, without := testPath(t), failing(&[]string{})
	delete(without.Indexers, "odd")
	db := openTest(t, path, Options{})
	must(t, claimTest(t, db, failing(&[]string{})).Add(configMap("ns", "a", 1, map[string]string{"words": "x"})))
	closeTest(t, db)
	for _, memory := range []int64{-1, 8 << 20} {
		db = openTest(t, path, Options{ObjectMemory: memory})
		s := claimTest(t, db, without)
		if memory > 0 {
			loadedInMemory(t, s)
		}
		if values := s.ListIndexFuncValues("odd"); values == nil || len(values) > 0 {
			t.Errorf("ListIndexFuncValues: %#v", values)
		}
		if p, err := s.IndexPage("odd", "v1", nil, 10); err == nil || !strings.Contains(err.Error(), "Index with name odd does not exist") {
			t.Errorf("IndexPage: %v, %v", p.Keys, err)
		}
		if p, err := s.IndexPage("words", "x", nil, 10); err != nil || len(p.Keys) != 1 {
			t.Errorf("IndexPage of another: %v, %v", p.Keys, err)
		}
		v, err := db.View(configMaps)
		must(t, err)
		if values := v.ListIndexFuncValues("odd"); len(values) != 1 {
			t.Errorf("a view, which knows what the file has: %v", values)
		}
		if p, err := v.IndexPage("odd", "v1", nil, 10); err != nil || len(p.Keys) != 1 {
			t.Errorf("IndexPage of a view: %v, %v", p.Keys, err)
		}
		closeTest(t, db)
	}
}

// TestIndexPageOfAnotherFunction: while the file's index has the values of an earlier
// function, IndexPage does not return objects by it.
func TestIndexPageOfAnotherFunction(t *testing.T) {
	path, without := testPath(t), failing(&[]string{})
	delete(without.Indexers, "odd")
	db := openTest(t, path, Options{})
	must(t, claimTest(t, db, failing(&[]string{})).Add(configMap("ns", "a", 1, nil)))
	closeTest(t, db)
	s := claimTest(t, openTest(t, path, Options{ObjectMemory: 8 << 20}), without)
	loadedInMemory(t, s)
	s.versions = map[string]string{"words": "1", "odd": "2"}
	calls := 0
	must(t, s.AddIndexers(cache.Indexers{"odd": func(any) ([]string, error) {
		calls++
		for _, value := range []string{"v1", "new"} {
			if p, err := s.IndexPage("odd", value, nil, 10); err == nil {
				t.Errorf("%s: %v", value, p.Keys)
			}
		}
		return []string{"new"}, nil
	}}))
	if calls != 1 {
		t.Errorf("the function was called %d times", calls)
	}
	if p, err := s.IndexPage("odd", "new", nil, 10); err != nil || len(p.Keys) != 1 {
		t.Errorf("%v, %v", p.Keys, err)
	}
}

// TestIndexPageOfAnEmptyIndex: an index in which no object has a value is complete, too.
func TestIndexPageOfAnEmptyIndex(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: cache.Indexers{"none": func(any) ([]string, error) { return nil, nil }}})
	must(t, s.Add(configMap("ns", "a", 1, nil)))
	v, err := db.View(configMaps)
	must(t, err)
	for name, s := range map[string]*Store{"claimed": s.Store, "view": v} {
		if p, err := s.IndexPage("none", "v", nil, 10); err != nil || len(p.Keys) > 0 || p.Next != nil || !p.Synced {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if p, err := s.IndexPage("no index", "v", nil, 10); err == nil {
			t.Errorf("%s: %+v", name, p)
		}
	}
}
