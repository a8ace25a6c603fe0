package boltstore

import (
	"strings"
	"testing"

	"k8s.io/client-go/tools/cache"
)

// TestLongIndexName: a file with an index whose name is so long that the file has its hash
// is sound, and stays where it is after an unclean boot.
func TestLongIndexName(t *testing.T) {
	path, name := testPath(t), strings.Repeat("index", 200)
	claim := Claim{Indexers: cache.Indexers{name: cache.MetaNamespaceIndexFunc},
		IndexVersions: map[string]string{name: "1"}}
	db := openTest(t, path, Options{})
	must(t, claimTest(t, db, claim).Add(configMap("a", "one", 1, nil)))
	closeTest(t, db)
	changeHeader(t, path, ofUncleanBoot)
	db = openTest(t, path, Options{})
	s := claimTest(t, db, claim)
	if objs, err := s.ByIndex(name, "a"); len(objs) != 1 || err != nil || len(db.AsidePaths()) > 0 {
		t.Error(objs, err, db.AsidePaths())
	}
}
