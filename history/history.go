// Package history says what happened to an object, from the journal of a file:
// one version after the other, who changed it, and what.
package history

import (
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// Version is one change of an object.
type Version struct {
	Key  string          `json:"key"`  // namespace/name
	Seq  uint64          `json:"seq"`  // in the journal
	Time time.Time       `json:"time"` // when it was stored
	Type cache.DeltaType `json:"type"` // Added, Updated or Deleted
	// ResourceVersion and UID after the change; of the last known state where
	// the final one is not known.
	ResourceVersion string    `json:"resourceVersion"`
	UID             types.UID `json:"uid"`
	// FinalStateUnknown: it was found to be gone.
	FinalStateUnknown bool `json:"finalStateUnknown,omitempty"`
	// Managers whose managed fields are not what they were, as
	// "manager/operation" or "manager/operation/subresource". Empty where the
	// objects are kept without managed fields.
	Managers []string `json:"managers,omitempty"`
	// Object after the change. It is shared and must not be modified.
	Object any `json:"-"`
	// Diff to the version before, but for managed fields and resourceVersion.
	// Empty for Added, and for Deleted where the final state is not known.
	Diff []Change `json:"diff,omitempty"`
}

// Of yields the versions of the object with that key, or of all objects if it is
// empty, oldest first, as far as
// the journal reaches: boltstore.Options.JournalBytes and JournalAge say how
// long entries are kept. What the first list of a source brought is not in it.
// It reads the file block by block, and keeps no more than one in memory. An
// error ends it.
func Of(s *boltstore.Store, key string) iter.Seq2[Version, error] {
	return func(yield func(Version, error) bool) {
		for e, err := range s.History(key) {
			var v Version
			if err == nil {
				v, err = version(s, e)
			}
			if !yield(v, err) || err != nil {
				return
			}
		}
	}
}

func version(s *boltstore.Store, e *boltstore.Entry) (Version, error) {
	v := Version{Key: e.Key, Seq: e.Seq, Time: e.Time, Type: e.Type}
	obj, err := e.Object()
	if err != nil {
		return v, err
	}
	prev, err := e.Previous()
	if err != nil {
		return v, err
	}
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		v.FinalStateUnknown, obj = true, d.Obj
	}
	v.Object = obj
	m, err := meta.Accessor(obj)
	if err != nil {
		return v, nil // gone, and nothing is known of it
	}
	v.ResourceVersion, v.UID = m.GetResourceVersion(), m.GetUID()
	before := []metav1.ManagedFieldsEntry(nil)
	if p, err := meta.Accessor(prev); err == nil {
		before = p.GetManagedFields()
	}
	if v.FinalStateUnknown {
		return v, nil
	}
	v.Managers = managers(before, m.GetManagedFields())
	if prev == nil || e.Type == cache.Added {
		return v, nil
	}
	st := s.State()
	if v.Diff, err = diff(st.APIVersion, st.Kind, prev, obj); err != nil {
		return v, fmt.Errorf("history: %s at %s: %w", e.Key, v.ResourceVersion, err)
	}
	return v, nil
}

// managers are those whose entry is new or another.
func managers(before, after []metav1.ManagedFieldsEntry) (names []string) {
	same := func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource && a.APIVersion == b.APIVersion &&
			a.Time.Equal(b.Time) && fields(a) == fields(b)
	}
	for _, a := range after {
		if slices.ContainsFunc(before, func(b metav1.ManagedFieldsEntry) bool { return same(a, b) }) {
			continue
		}
		name := fmt.Sprintf("%s/%s", a.Manager, a.Operation)
		if a.Subresource != "" {
			name += "/" + a.Subresource
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func fields(e metav1.ManagedFieldsEntry) string {
	if e.FieldsV1 == nil {
		return ""
	}
	return e.FieldsV1.GetRawString()
}
