//go:build linux

package load

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/filetest"
)

// check compares a file that no program has open with the server's state at the file's
// versions. It returns these versions, and how new objects may be: newer while a list has not
// ended.
func (w *writer) check(t *testing.T, path, keys, what string) (versions, newest [sources]uint64) {
	t.Helper()
	began := time.Now()
	db, err := boltstore.Open(path, boltstore.Options{ReadOnly: true, Keyset: seal.File(keys)})
	if err != nil {
		t.Fatal(what, err)
	}
	defer db.Close()
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%s: the file is not sound: %+v %v", what, r, err)
	}
	states, err := db.States()
	if err != nil {
		t.Fatal(what, err)
	}
	for _, st := range states {
		src := large
		if st.Source.Resource == resources[small] {
			src = small
		}
		if st.Degraded != "" || st.Unstored > 0 || st.Unindexed > 0 {
			t.Fatalf("%s: %s is degraded: %+v", what, st.Source, st)
		}
		if !st.Synced {
			continue // killed in the first list
		}
		versions[src] = versionOf(st.ResourceVersion)
		newest[src] = max(versions[src], versionOf(st.NewestPage))
		want, err := w.truth[src].from(versions[src], newest[src])
		if err != nil {
			t.Fatalf("%s: %s: %v", what, st.Source, err)
		}
		s, err := db.View(st.Source)
		if err != nil {
			t.Fatal(what, err)
		}
		w.same(t, s, want, what+", "+resources[src]+" at "+st.ResourceVersion)
	}
	t.Logf("%s: %d and %d, size %s, checked in %v", what, versions[large], versions[small], mb(db.Size()),
		time.Since(began).Round(time.Millisecond))
	return versions, newest
}

// same compares all objects and indices of a source with the states that each may be in.
func (w *writer) same(t *testing.T, s *boltstore.Store, want [][]state, what string) {
	t.Helper()
	all, err := s.ListErr()
	if err != nil {
		t.Fatal(what, err)
	}
	there := make([]bool, len(want))
	for _, obj := range all {
		slot, err := w.isObject(obj, want)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		there[slot] = true
	}
	for slot, states := range want {
		mayLack := slices.ContainsFunc(states, func(st state) bool { return !st.live })
		if !there[slot] && !mayLack {
			t.Errorf("%s: slot %d is not there, the server had %+v", what, slot, states)
		}
	}
	filetest.SameIndices(t, indexers(), s, all)
}

// isObject says which slot's an object is, and whether it equals the server's.
func (w *writer) isObject(obj any, want [][]state) (slot int, err error) {
	slot, _, version, err := identity(obj.(metav1.Object))
	if err != nil {
		return 0, err
	}
	at := slices.IndexFunc(want[slot], func(st state) bool { return st.live && st.version == version })
	if at < 0 {
		return 0, fmt.Errorf("slot %d has version %d, the server had %+v", slot, version, want[slot])
	}
	same := w.sizes.object(want[slot][at].content)
	same.SetResourceVersion(strconv.FormatUint(version, 10))
	if !apiequality.Semantic.DeepEqual(same, obj) {
		return 0, fmt.Errorf("slot %d at version %d is\n%+v\nthe server had\n%+v", slot, version, obj, same)
	}
	return slot, nil
}
