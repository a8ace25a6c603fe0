package boltstore

import "testing"

// TestViewOfAnotherTransform: a view is open while an informer replaces the file's
// objects, under another version of its transform. The view reads the new objects.
func TestViewOfAnotherTransform(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	srv.set(configMap("ns", "a", 1, map[string]string{"words": "x"}))
	relist(t, s, "5", RelistOptions{}, srv.list(), 5)
	v, err := db.View(configMaps)
	must(t, err)
	read := func(what string) {
		t.Helper()
		objs, err := v.ListErr()
		must(t, err)
		if len(objs) != 1 {
			t.Errorf("%s: %d objects without an error", what, len(objs))
		}
	}
	read("as it was")
	s.SetTransformVersion("2")
	read("outdated")
	relist(t, s, "6", RelistOptions{}, srv.list(), 5)
	serves(t, s, srv.list())
	read("listed again")
}

// TestViewOfAnotherType: the same with another structure of the Go type, as in a new
// build.
func TestViewOfAnotherType(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	srv.set(configMap("ns", "a", 1, map[string]string{"words": "x"}))
	s.form.typeHash = "of an earlier build"
	relist(t, s, "5", RelistOptions{}, srv.list(), 5)
	closeTest(t, db)

	db = openTest(t, path, Options{})
	v, err := db.View(configMaps)
	must(t, err)
	if objs, err := v.ListErr(); err != nil || len(objs) != 1 {
		t.Fatalf("%d objects, %v", len(objs), err)
	}
	s = claimTest(t, db, Claim{Indexers: indexers})
	relist(t, s, "6", RelistOptions{}, srv.list(), 5)
	serves(t, s, srv.list())
	if objs, err := v.ListErr(); err != nil || len(objs) != 1 {
		t.Errorf("listed again: %d objects, %v", len(objs), err)
	}
}
