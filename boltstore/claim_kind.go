package boltstore

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/objmeta"
)

// kindOf is the kind of a source's objects, empty if it is not known yet. The group and the
// version are the source's: an example may state none, or others, which client-go ignores.
func kindOf(example runtime.Object, src Source) schema.GroupVersionKind {
	gv := schema.GroupVersion{Group: src.Group, Version: src.Version}
	if gvks, _, err := scheme.Scheme.ObjectKinds(example); err == nil && src.Form == FormTyped {
		for _, gvk := range gvks {
			if gvk.GroupVersion() == gv {
				return gvk
			}
		}
	}
	if kind := shownKind(example).Kind; kind != "" {
		return gv.WithKind(kind)
	}
	if src.Form != FormTyped {
		for kind := range scheme.Scheme.KnownTypes(gv) {
			if plural, _ := meta.UnsafeGuessKindToResource(gv.WithKind(kind)); plural.Resource == src.Resource {
				return gv.WithKind(kind)
			}
		}
		return schema.GroupVersionKind{}
	}
	t := reflect.TypeOf(example)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return gv.WithKind(t.Name())
}

// shownKind is the kind that an object states, empty if it states none.
func shownKind(obj runtime.Object) (gvk schema.GroupVersionKind) {
	if k := obj.GetObjectKind(); !objmeta.IsNil(k) {
		gvk = k.GroupVersionKind()
	}
	return gvk
}

// ShowsKind notes the kind of an object of the server's, before a transform changes it,
// unless the claim gives the source's. A custom resource that is defined again may have
// another kind. The next commit writes it.
func (s Feed) ShowsKind(obj any) { s.coder.showsKind(obj) }

func (cd *coder) showsKind(obj any) {
	ro, ok := obj.(runtime.Object)
	if cd.kind.Kind != "" || !ok || objmeta.IsNil(ro) {
		return
	}
	if gvk, old := shownKind(ro), cd.shown.Load(); gvk.Kind != "" && (old == nil || gvk != *old) {
		cd.shown.Store(&schema.GroupVersionKind{Group: gvk.Group, Version: gvk.Version, Kind: gvk.Kind})
	}
}

// setKind notes the kind, as far as it is known.
func (cd *coder) setKind(m *sourceMeta) {
	kind := cd.kind
	if shown := cd.shown.Load(); shown != nil {
		kind = *shown
	}
	if kind.Kind != "" {
		m.APIVersion, m.Kind = kind.GroupVersion().String(), kind.Kind
	}
}
