// Package history says what happened to an object, from the journal of a file: each
// version, its managers, and what changed.
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
	// ResourceVersion and UID are those after the change. Of a delete whose final state
	// is not known, they are those of the last known state.
	ResourceVersion string    `json:"resourceVersion"`
	UID             types.UID `json:"uid"`
	// FinalStateUnknown says that a relist found the object gone.
	FinalStateUnknown bool `json:"finalStateUnknown,omitempty"`
	// Managers are those whose managed fields have changed, as "manager/operation" or
	// "manager/operation/subresource". They are empty if objects are stored without
	// managed fields.
	Managers []string `json:"managers,omitempty"`
	// Object is the object after the change. It is shared and must not be modified.
	Object any `json:"-"`
	// Diff is the difference to the version before, without managed fields and
	// resourceVersion. It is empty for Added, and for Deleted if the final state is not
	// known.
	Diff []Change `json:"diff,omitempty"`
}

// Of yields the versions of the object with that key, oldest first; "" means all objects.
// It yields those that the journal still has: boltstore.Options.JournalBytes and
// JournalAge say how long entries are kept. The objects of a source's first list are not
// in the journal. Of reads the file block by block, and keeps one block in memory. An
// error ends the iteration.
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
		return v, nil // deleted, and no state is known
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

// managers returns the managers whose entry is new or has changed.
func managers(before, after []metav1.ManagedFieldsEntry) (names []string) {
	same := func(a, b metav1.ManagedFieldsEntry) bool {
		return a.Manager == b.Manager && a.Operation == b.Operation && a.Subresource == b.Subresource &&
			a.APIVersion == b.APIVersion &&
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
