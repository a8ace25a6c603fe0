package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/history"
)

// query selects objects of a source.
type query struct {
	source boltstore.State
	// key selects one object, namespace/name, in history; at asks for it as it was then.
	key string
	at  history.Moment
	// namespace selects the objects in it.
	namespace string
	// secrets shows the data of Secrets. Otherwise they are redacted.
	secrets bool
}

// objectVersion is one version of an object.
type objectVersion struct {
	history.Version
	// Object is the object after the change. For a delete it is the last known one, if
	// there is one.
	Object *unstructured.Unstructured `json:"object,omitempty"`
}

// indexValue is a value of an index, and the keys that have it, sorted.
type indexValue struct {
	Value string   `json:"value"`
	Keys  []string `json:"keys"`
}

// errNotFound: the file has no such source, object or index. errSecret: the answer may have the
// data of Secrets, which the query does not ask for.
var (
	errNotFound = errors.New("not found")
	errSecret   = errors.New("it may show the data of secrets")
)

// store returns the source's objects.
func (r *reader) store(ctx context.Context, q query) (*boltstore.Store, error) {
	db, err := r.file(ctx)
	if err != nil {
		return nil, err
	}
	s, err := db.View(q.source.Source)
	if errors.Is(err, boltstore.ErrNoSource) {
		return nil, fmt.Errorf("source %s: %w", q.source.Source, errNotFound)
	}
	return s, err
}

// asItWas calls fn with the object at the query's key, as it was then.
func (r *reader) asItWas(ctx context.Context, q query, fn func(*unstructured.Unstructured) error) error {
	s, err := r.store(ctx, q)
	if err != nil {
		return err
	}
	obj, err := history.At(s, q.key, q.at)
	if err == nil && obj == nil {
		err = fmt.Errorf("%s %q: %w", q.source.Source, q.key, errNotFound)
	}
	if err != nil {
		return err
	}
	u, err := q.unstructured(obj)
	if err != nil {
		return err
	}
	return fn(u)
}

// index calls fn with each value of an index, sorted, or only with one, unless that is empty.
// errSecret: the index of Secrets is not the one by namespace.
func (r *reader) index(ctx context.Context, q query, name, value string, fn func(indexValue) error) error {
	s, err := r.store(ctx, q)
	if err != nil {
		return err
	}
	if s.GetIndexers()[name] == nil {
		has := strings.Join(q.source.Indices, ", ")
		return fmt.Errorf("index %q of %s: %w; it has: %s", name, q.source.Source, errNotFound, has)
	}
	if q.hides(q.source.Kind) && name != cache.NamespaceIndex {
		return fmt.Errorf("index %q of %s: %w", name, q.source.Source, errSecret)
	}
	values := []string{value}
	if value == "" {
		values = s.ListIndexFuncValues(name)
		slices.Sort(values)
	}
	for _, value := range values {
		keys, err := s.IndexKeys(name, value)
		if err == nil && len(keys) > 0 { // it may have gone since
			err = fn(indexValue{value, keys})
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return s.Err()
}

// history calls fn with each version in the source's journal, oldest first, until fn fails.
func (r *reader) history(ctx context.Context, q query, fn func(objectVersion) error) error {
	s, err := r.store(ctx, q)
	if err != nil {
		return err
	}
	for h, err := range history.Of(s, q.key) {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
		v, kind := objectVersion{Version: h}, q.source.Kind
		if h.Object != nil {
			if v.Object, err = q.unstructured(h.Object); err != nil {
				return err
			}
			kind = v.Object.GetKind()
		}
		if q.hides(kind) {
			redactDiff(h.Diff)
		}
		if err := fn(v); err != nil {
			return err
		}
	}
	return nil
}

// hides says whether secret data of objects of that kind must be redacted. Secrets kept
// as metadata have another kind, so the resource counts, too.
func (q *query) hides(kind string) bool {
	src := q.source.Source
	return (kind == "Secret" || src.Group == "" && src.Resource == "secrets") && !q.secrets
}

// unstructured copies an object, gives it the apiVersion and kind if it has none of its
// own, and redacts secrets. Objects that were unstructured have their own, since a
// custom resource may be defined again with another kind.
func (q *query) unstructured(obj any) (*unstructured.Unstructured, error) {
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
		u.SetAPIVersion(q.source.APIVersion)
		u.SetKind(q.source.Kind)
	}
	if q.hides(u.GetKind()) {
		redact(u)
	}
	return u, nil
}

const redacted = "REDACTED"

// redactDiff removes the values from diff. It leaves the names of the fields that
// changed.
func redactDiff(diff []history.Change) {
	secret := []string{".data", ".stringData", ".metadata.annotations"}
	for i, c := range diff {
		if !slices.ContainsFunc(secret, func(field string) bool { return strings.HasPrefix(c.Path, field) }) {
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
	if a := u.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
		a[corev1.LastAppliedConfigAnnotation] = redacted
		u.SetAnnotations(a)
	}
}
