// Package printcolumns makes tables of objects with the columns that kube-apiserver 1.36
// prints: [metav1.Table], by kind. A custom resource has the columns that its definition
// names. Any other kind has its name and the time of its creation, as on a server that
// does not know the kind.
package printcolumns

import (
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes/scheme"
)

// Kind prints objects of one kind. It is safe for concurrent use.
type Kind struct {
	columns func() []metav1.TableColumnDefinition
	typed   func() runtime.Object // makes the argument of row; nil takes any object
	takes   func(runtime.Object) bool
	row     func(obj runtime.Object, now time.Time) metav1.TableRow
}

// For returns how objects of a type are printed. columns are those that the definition of
// a custom resource has. metadataOnly says that the objects have nothing else.
func For(gvk schema.GroupVersionKind, columns []Column, metadataOnly bool) *Kind {
	k := kinds[gvk]
	switch {
	case !BuiltIn(gvk) && metadataOnly:
		return custom(nil)
	case !BuiltIn(gvk):
		return custom(columns)
	case k == nil || metadataOnly:
		return unknown
	}
	return k
}

// Columns returns the columns, which are the same for all objects of the kind. They must
// not be changed.
func (k *Kind) Columns() []metav1.TableColumnDefinition { return k.columns() }

// Row returns the cells of an object, and the row's conditions. An object of another Go
// type, as an unstructured one, is converted. Ages are those at now.
func (k *Kind) Row(obj runtime.Object, now time.Time) (metav1.TableRow, error) {
	if k.typed != nil && !k.takes(obj) {
		typed := k.typed()
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, typed)
		}
		if err != nil {
			return metav1.TableRow{}, fmt.Errorf("the columns of its kind cannot be made: %w", err)
		}
		obj = typed
	}
	return k.row(obj, now), nil
}

// unknown is the Kind of built-in types without columns of their own.
var unknown = &Kind{
	columns: sync.OnceValue(func() []metav1.TableColumnDefinition {
		return []metav1.TableColumnDefinition{name(), column("Created At", "date", metadata["creationTimestamp"])}
	}),
	row: func(obj runtime.Object, _ time.Time) metav1.TableRow {
		o, ok := obj.(metav1.Object)
		if !ok {
			return metav1.TableRow{Cells: []any{nil, nil}}
		}
		return metav1.TableRow{Cells: []any{o.GetName(), o.GetCreationTimestamp().UTC().Format(time.RFC3339)}}
	},
}

// kinds are the built-in types with columns of their own.
var kinds = map[schema.GroupVersionKind]*Kind{}

// object is a pointer to an API type.
type object[T any] interface {
	*T
	runtime.Object
}

// register adds the kind of T. Its columns are made when they are first asked for.
func register[T any, P object[T]](columns func() []metav1.TableColumnDefinition, cells func(P, time.Time) []any) {
	registerRow(columns, func(o P, now time.Time) metav1.TableRow { return metav1.TableRow{Cells: cells(o, now)} })
}

// registerRow is register for rows with conditions.
func registerRow[T any, P object[T]](columns func() []metav1.TableColumnDefinition,
	row func(P, time.Time) metav1.TableRow) {
	gvks, _, err := scheme.Scheme.ObjectKinds(P(new(T)))
	if err != nil {
		panic(err) // the scheme has all types of k8s.io/api
	}
	kinds[gvks[0]] = &Kind{
		columns: sync.OnceValue(columns),
		typed:   func() runtime.Object { return P(new(T)) },
		takes:   func(obj runtime.Object) bool { _, ok := obj.(P); return ok },
		row:     func(obj runtime.Object, now time.Time) metav1.TableRow { return row(obj.(P), now) },
	}
}

// metadata has the API's descriptions of the fields of metadata.
var metadata = metav1.ObjectMeta{}.SwaggerDoc()

func column(name, kind, description string) metav1.TableColumnDefinition {
	return metav1.TableColumnDefinition{Name: name, Type: kind, Description: description}
}

func text(name, description string) metav1.TableColumnDefinition {
	return column(name, "string", description)
}

func integer(name, description string) metav1.TableColumnDefinition {
	return column(name, "integer", description)
}

// wide is a text that clients show only if they are asked for more.
func wide(name, description string) metav1.TableColumnDefinition {
	c := text(name, description)
	c.Priority = 1
	return c
}

func name() metav1.TableColumnDefinition {
	c := text("Name", metadata["name"])
	c.Format = "name"
	return c
}

func age() metav1.TableColumnDefinition { return text("Age", metadata["creationTimestamp"]) }

// since is the time that has passed, as people read it.
func since(t, now time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(t))
}

func ageOf(o metav1.Object, now time.Time) string { return since(o.GetCreationTimestamp().Time, now) }

// or is s, or empty if s is "".
func or[S ~string](s S, empty string) string {
	if s == "" {
		return empty
	}
	return string(s)
}

// orOf is or for a pointer.
func orOf[S ~string](s *S, missing string) string {
	if s == nil {
		return missing
	}
	return string(*s)
}
