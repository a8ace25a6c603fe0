package boltstore

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// TestViewOfASlimType: objects of a kind of client-go's scheme may have a Go type of the
// program's own, which leaves out fields to spare memory. While the source is claimed, a view
// reads them in that type. Another program's view says why it cannot; that is no damage.
func TestViewOfASlimType(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	a := &widget[fewParts]{Parts: fewParts{"blue"}}
	a.Namespace, a.Name, a.UID, a.ResourceVersion = "ns", "a", "1", "1"
	a.APIVersion, a.Kind = "v1", "ConfigMap"
	s := claimTest(t, db, Claim{Example: a})
	relist(t, s, "5", RelistOptions{}, []runtime.Object{a}, 5)
	v, err := db.View(configMaps)
	must(t, err)
	list, err := v.ListErr()
	must(t, err)
	sameObjects(t, "view", []any{a}, list)
	closeTest(t, db)

	db = openTest(t, path, Options{})
	v, err = db.View(configMaps)
	must(t, err)
	if _, err := v.ListErr(); err == nil || errors.Is(err, ErrDamaged) || v.Err() != nil {
		t.Errorf("%v, %v", err, v.Err())
	}
}
