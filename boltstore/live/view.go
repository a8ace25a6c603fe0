package live

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/history"
)

// view is a source as a query selects it.
type view struct {
	store *boltstore.Store
	state boltstore.State
	query Query
}

// get returns the object at the query's key, now or as it was.
func (v *view) get() (obj any, ok bool, err error) {
	if v.query.At.IsZero() {
		return v.store.GetByKey(v.query.Key)
	}
	obj, err = history.At(v.store, v.query.Key, v.query.At)
	return obj, obj != nil, err
}

// prefix begins the keys that the query selects by their namespace.
func (v *view) prefix() string {
	if v.query.Namespace == "" {
		return ""
	}
	return v.query.Namespace + "/"
}

// keyed says whether keys begin with the namespaces of the objects, as in a server's
// lists. A program's own store may have any keys.
func (v *view) keyed() bool {
	if !v.state.Synced {
		return false
	}
	p, err := v.store.Page(nil, 1)
	if err != nil || len(p.Objects) == 0 || p.Objects[0] == nil {
		return true // damage is not read here
	}
	key, err := cache.MetaNamespaceKeyFunc(p.Objects[0])
	return err == nil && key == p.Keys[0]
}

// within calls fn with the objects in a namespace, and with those in none.
func within(namespace string, fn func(*unstructured.Unstructured) error) func(*unstructured.Unstructured) error {
	return func(u *unstructured.Unstructured) error {
		if in := u.GetNamespace(); in != "" && in != namespace {
			return nil
		}
		return fn(u)
	}
}

// sorted reads the objects in the order of their keys, each by its key.
func (v *view) sorted(ctx context.Context, fn func(*unstructured.Unstructured) error) error {
	first, err := v.store.Page(nil, 1)
	if err != nil || !first.Synced {
		return err
	}
	keys, err := v.store.ListKeysErr()
	if err != nil {
		return err
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !strings.HasPrefix(key, v.prefix()) })
	slices.Sort(keys)
	for _, key := range keys {
		obj, ok, err := v.store.GetByKey(key)
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && ok { // it may have gone since
			err = v.give(obj, fn)
		}
		if err != nil {
			return err
		}
	}
	last, err := v.store.Page(nil, 1)
	if err == nil && (last.Epoch != first.Epoch || !last.Synced) {
		err = v.errSetAside()
	}
	return err
}

func (v *view) errSetAside() error {
	return fmt.Errorf("%s: its objects were set aside while they were read; try again", v.query.Source)
}

func (v *view) give(obj any, fn func(*unstructured.Unstructured) error) error {
	u, err := v.unstructured(obj)
	if err != nil {
		return err
	}
	return fn(u)
}

// hides says whether secret data of objects of that kind must be redacted. Secrets kept
// as metadata have another kind, so the resource counts, too.
func (v *view) hides(kind string) bool {
	src := v.state.Source
	return (kind == "Secret" || src.Group == "" && src.Resource == "secrets") && !v.query.Secrets
}

// unstructured copies an object, gives it the apiVersion and kind if it has none of its
// own, and redacts secrets. Objects that were unstructured have their own, since a
// custom resource may be defined again with another kind.
func (v *view) unstructured(obj any) (*unstructured.Unstructured, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if ok {
		u = u.DeepCopy()
	} else {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err != nil {
			return nil, err
		}
		u = &unstructured.Unstructured{Object: content}
	}
	if !ok || u.GetKind() == "" {
		u.SetAPIVersion(v.state.APIVersion)
		u.SetKind(v.state.Kind)
	}
	if v.hides(u.GetKind()) {
		redact(u)
	}
	return u, nil
}

const (
	redacted = "REDACTED"
	// applied is an annotation that has a copy of the data.
	applied = "kubectl.kubernetes.io/last-applied-configuration"
)

// redactDiff removes the values from diff. It leaves the names of the fields that
// changed.
func redactDiff(diff []history.Change) {
	for i, c := range diff {
		if !strings.HasPrefix(c.Path, ".data") && !strings.HasPrefix(c.Path, ".stringData") && !strings.HasPrefix(c.Path, ".metadata.annotations") {
			continue
		}
		for _, v := range []*any{&diff[i].Old, &diff[i].New} {
			if *v != nil {
				*v = redacted
			}
		}
	}
}

func redact(u *unstructured.Unstructured) {
	for _, field := range []string{"data", "stringData"} {
		if m, ok := u.Object[field].(map[string]any); ok {
			for k := range m {
				m[k] = redacted
			}
		}
	}
	if a := u.GetAnnotations(); a[applied] != "" {
		a[applied] = redacted
		u.SetAnnotations(a)
	}
}
