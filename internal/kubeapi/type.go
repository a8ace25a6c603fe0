package kubeapi

import (
	"fmt"
	"reflect"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
)

// Resource is one type that is served. A kind that client-go's scheme knows is served
// as JSON and protobuf. Any other is a custom resource, unstructured and JSON only.
type Resource struct {
	schema.GroupVersionKind
	Plural     string
	Namespaced bool
	ShortNames []string
	Categories []string
	// Columns are the columns in the definition of a custom resource.
	Columns []printcolumns.Column
}

// Type is a Resource with everything that is needed to serve it. It translates between
// the Go objects of the kind and their encodings.
type Type struct {
	Resource
	Custom   bool // it is unstructured; so are all that client-go's scheme does not know
	Singular string
	Verbs    []string
	// SelectedBy are further fields that a selector can name. The Storage sees to it that
	// objects have them; see Object.Known.
	SelectedBy []string
	// MetadataOnly: the Storage has only metadata of the objects. They are served as
	// PartialObjectMetadata and in tables. Whole objects get 406.
	MetadataOnly bool

	builtIn  bool   // a server has a Go type of it
	jsonHead string // what the JSON of a built-in object starts with
}

// NewType returns the type of a resource.
func NewType(r Resource, verbs ...string) *Type {
	typed := scheme.Scheme.Recognizes(r.GroupVersionKind)
	return &Type{
		Resource: r,
		Custom:   !typed,
		builtIn:  printcolumns.BuiltIn(r.GroupVersionKind),
		Singular: strings.ToLower(r.Kind),
		Verbs:    verbs,
		jsonHead: fmt.Sprintf(`{"kind":%q,"apiVersion":%q,`, r.Kind, r.GroupVersion().String()),
	}
}

// hasStatus says whether a server has the subresource status, which is the object: built-in
// types with a field of that name do. Of a custom resource it is not known, and assumed.
func (t *Type) hasStatus() bool {
	obj, err := scheme.Scheme.New(t.GroupVersionKind)
	return err != nil || reflect.ValueOf(obj).Elem().FieldByName("Status").IsValid()
}

// GroupResource is the type's name.
func (t *Type) GroupResource() schema.GroupResource {
	return schema.GroupResource{Group: t.Group, Resource: t.Plural}
}

// Key is the key of an object: "/namespace/name", or "/name" in no namespace.
func (t *Type) Key(namespace, name string) string {
	if t.Namespaced {
		return "/" + namespace + "/" + name
	}
	return "/" + name
}

// goPackage names the server's internal package of the type in messages.
func (t *Type) goPackage() string {
	switch {
	case t.Custom:
		return "unstructured"
	case t.Group == "":
		return "core"
	default:
		return strings.Split(t.Group, ".")[0]
	}
}

type protoMessage interface {
	Reset()
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

var metaKind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
