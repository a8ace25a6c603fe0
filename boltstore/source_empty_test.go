package boltstore

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/listing"
)

// TestStandsIsOfACluster: if the versions of one cluster stand still, this says nothing
// about the next cluster, whose contents replace the ones set aside.
func TestStandsIsOfACluster(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	objs := []runtime.Object{configMap("ns", "a", 1, nil)}
	relistSome(t, s, "5", RelistOptions{}, objs)
	s.Upstream.NoteFacts(func(f *listing.Facts) { f.Stands = true })
	must(t, s.Upstream.Empty())
	relistSome(t, s, "6", RelistOptions{}, objs)
	must(t, s.Add(configMap("ns", "b", 7, nil)))
	if s.Upstream.Facts().Stands || s.metaNow().Facts.Stands {
		t.Error("in the same life")
	}
	closeTest(t, db)
	if s := claimTest(t, openTest(t, path, Options{}), Claim{}); s.Upstream.Facts().Stands {
		t.Error("in the next one")
	}
}
