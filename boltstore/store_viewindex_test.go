package boltstore

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestViewOfAnIndexThatLacksObjects: a view is open while a program stores an object that
// an index of the file comes to lack, since the program does not use it. From then on the
// view does not answer without the object.
func TestViewOfAnIndexThatLacksObjects(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	must(t, claimTest(t, db, failing(&[]string{})).Add(configMap("ns", "a", 1, nil)))
	closeTest(t, db)

	db = openTest(t, path, Options{})
	v, err := db.View(configMaps)
	must(t, err)
	s := claimTest(t, db, wordsOnly())
	if keys, err := v.IndexKeys("odd", "v1"); err != nil || len(keys) != 1 {
		t.Fatalf("the index is complete: %v, %v", keys, err)
	}
	must(t, s.Add(configMap("ns", "b", 2, nil)))
	if objs, err := v.ListErr(); err != nil || len(objs) != 2 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
	if keys, err := v.IndexKeys("odd", "v2"); err == nil && len(keys) == 0 {
		t.Errorf("IndexKeys: %q without an error", keys)
	}
	if objs, err := v.ByIndex("odd", "v2"); err == nil && len(objs) == 0 {
		t.Errorf("ByIndex: %d objects without an error", len(objs))
	}
}

// TestViewOfALateIndex: a view answers by an index that the file has had only since the
// view was made.
func TestViewOfALateIndex(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, wordsOnly())
	must(t, s.Add(configMap("ns", "a", 1, nil)))
	v, err := db.View(configMaps)
	must(t, err)
	if _, err := v.ByIndex("late", "a"); err == nil || err.Error() != "Index with name late does not exist" {
		t.Fatal(err)
	}
	must(t, s.AddIndexers(cache.Indexers{"late": func(o any) ([]string, error) {
		return []string{o.(*corev1.ConfigMap).Name}, nil
	}}))
	waitBuilt(t, s, "late")
	if keys, err := v.IndexKeys("late", "a"); err != nil || len(keys) != 1 {
		t.Errorf("IndexKeys: %q, %v", keys, err)
	}
	if objs, err := v.ByIndex("late", "a"); err != nil || len(objs) != 1 {
		t.Errorf("ByIndex: %v, %v", objs, err)
	}
	if values := v.ListIndexFuncValues("late"); len(values) != 1 {
		t.Errorf("ListIndexFuncValues: %q", values)
	}
	if _, err := v.Index("late", configMap("ns", "a", 1, nil)); err == nil {
		t.Error("the view knows the index function")
	}
}
