package boltstore

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestHolds: Holds says which objects of a list the file lacks under their UID and
// version, and whether it has no others. The program's own writes do not count.
func TestHolds(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	srv := server{}
	var listed []listing.Object
	for i := range 3 {
		o := configMap("ns", fmt.Sprint("cm", i), 10+i, nil)
		srv.set(o)
		listed = append(listed, listedAs(o))
	}
	relist(t, s, "20", RelistOptions{}, srv.list(), 100)
	holds := func(what string, list []listing.Object, lacking int, is bool) {
		t.Helper()
		l, only, err := s.Upstream.Holds(list, uint64(len(list)), nil)
		if err != nil || len(l) != lacking || only != is {
			t.Errorf("%s: lacks %v, only those %v, %v", what, l, only, err)
		}
	}
	holds("all", listed, 0, true)
	holds("one less", listed[:2], 0, false)
	other := append([]listing.Object(nil), listed...)
	other[1].ResourceVersion = "99"
	holds("another version", other, 1, true)
	other[1] = listed[1]
	other[2].UID = "another"
	holds("another UID", other, 1, true)
	other[2] = listing.Object{Namespace: "ns", Name: "new", UID: "u", ResourceVersion: "5"}
	holds("another object", other, 1, true)
}

// TestMetadataSizeIsKept: the size that a life has seen is known in the next, without a
// commit of its own.
func TestMetadataSizeIsKept(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	if n := s.Upstream.Facts().MetadataSize; n != 0 {
		t.Error("nothing was seen, and", n)
	}
	s.Upstream.NoteFacts(func(f *listing.Facts) { f.MetadataSize = 321 })
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, path, Options{})
	if n := claimTest(t, db, Claim{}).Upstream.Facts().MetadataSize; n != 321 {
		t.Error("kept:", n)
	}
}

func listedAs(o *corev1.ConfigMap) listing.Object {
	return listing.Object{Namespace: o.Namespace, Name: o.Name, UID: string(o.UID), ResourceVersion: o.ResourceVersion}
}
