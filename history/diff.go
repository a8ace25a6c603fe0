package history

import (
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
	"sigs.k8s.io/structured-merge-diff/v6/typed"
	"sigs.k8s.io/structured-merge-diff/v6/value"
)

// Change is the change of one field. Lists are compared element by element if the API's
// schema gives their elements keys. Other lists, and all lists of custom resources, are
// compared as a whole.
type Change struct {
	Path string `json:"path"` // as in .spec.containers[name="app"].image
	Old  any    `json:"old,omitempty"`
	New  any    `json:"new,omitempty"`
}

var (
	builtin = sync.OnceValue(func() managedfields.TypeConverter {
		return applyconfigurations.NewTypeConverter(scheme.Scheme)
	})
	deduced = managedfields.NewDeducedTypeConverter()
)

// diff compares two objects of one kind.
func diff(apiVersion, kind string, before, after any) ([]Change, error) {
	old, err := plain(apiVersion, kind, before)
	if err != nil {
		return nil, err
	}
	new, err := plain(apiVersion, kind, after)
	if err != nil {
		return nil, err
	}
	a, b, err := sides(old, new)
	if err != nil {
		return nil, err
	}
	c, err := a.Compare(b)
	if err != nil {
		return nil, err
	}
	var changes []Change
	c.Added.Union(c.Removed).Union(c.Modified).Leaves().Iterate(func(p fieldpath.Path) {
		changes = append(changes, Change{Path: p.String(), Old: at(old.Object, p), New: at(new.Object, p)})
	})
	return changes, nil
}

// sides returns both objects under the API's schema, or both without one.
func sides(old, new *unstructured.Unstructured) (a, b *typed.TypedValue, err error) {
	for _, c := range []managedfields.TypeConverter{builtin(), deduced} {
		if a, err = c.ObjectToTyped(old, typed.AllowDuplicates); err != nil {
			continue
		}
		if b, err = c.ObjectToTyped(new, typed.AllowDuplicates); err == nil {
			return a, b, nil
		}
	}
	return nil, nil, err
}

// plain returns a copy without the fields that change each time.
func plain(apiVersion, kind string, obj any) (*unstructured.Unstructured, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(m)}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	return u, nil
}

// at returns the part of v at a path, nil if there is none.
func at(v any, p fieldpath.Path) any {
	for _, e := range p {
		switch {
		case e.FieldName != nil:
			m, _ := v.(map[string]any)
			v = m[*e.FieldName]
		case e.Index != nil:
			l, _ := v.([]any)
			if *e.Index >= len(l) {
				return nil
			}
			v = l[*e.Index]
		default:
			v = element(v, e)
		}
	}
	return v
}

// element returns the element of a list with the given key, or value.
func element(v any, e fieldpath.PathElement) any {
	l, _ := v.([]any)
	for _, x := range l {
		if e.Value != nil && value.Equals(value.NewValueInterface(x), *e.Value) {
			return x
		}
		m, ok := x.(map[string]any)
		if !ok || e.Key == nil {
			continue
		}
		found := true
		for _, f := range *e.Key {
			found = found && value.Equals(value.NewValueInterface(m[f.Name]), f.Value)
		}
		if found {
			return x
		}
	}
	return nil
}
