package codec

import (
	"crypto/sha256"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"reflect"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// StructureHash is a fingerprint of a Go type: its exported fields with their names, json and
// protobuf tags and types, at every depth. It is the same in every process. An object stored with a
// type of another hash may lack fields that the API server has.
//
// A type that marshals itself counts with its name and its exported fields. Types of metav1 and
// resource that hide their fields count with the name only, so build tags make no difference.
func StructureHash(t reflect.Type) string {
	if sum, ok := hashes.Load(t); ok {
		return sum.(string)
	}
	h := structureHash{sha256.New(), map[reflect.Type]int{}}
	h.add(t)
	sum := hex.EncodeToString(h.Sum(nil)[:16])
	hashes.Store(t, sum)
	return sum
}

// hashes are the results of StructureHash: a Pod's takes a millisecond.
var hashes sync.Map

type structureHash struct {
	hash.Hash
	seen map[reflect.Type]int // types begun, by their order
}

// hiding has the types of Kubernetes that hide their fields, or do so with some build tags.
var hiding = map[reflect.Type]bool{
	quantityType:                        true,
	reflect.TypeFor[metav1.Time]():      true,
	reflect.TypeFor[metav1.MicroTime](): true,
	reflect.TypeFor[metav1.FieldsV1]():  true,
	reflect.TypeFor[time.Time]():        true,
}

// marshals says whether t, or a pointer to it, writes its JSON itself.
func marshals(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Marshaler]()) || p.Implements(reflect.TypeFor[encoding.TextMarshaler]())
}

func (h structureHash) add(t reflect.Type) {
	if t == nil {
		fmt.Fprint(h, "nil;")
		return
	}
	if marshals(t) {
		fmt.Fprintf(h, "marshals %s %s;", t.PkgPath(), t.Name())
	}
	if hiding[t] {
		return
	}
	if n, ok := h.seen[t]; ok {
		fmt.Fprintf(h, "type %d;", n)
		return
	}
	k := t.Kind()
	switch k {
	case reflect.Interface:
		fmt.Fprintf(h, "interface %s %s;", t.PkgPath(), t.Name())
		return
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
	default:
		fmt.Fprintf(h, "%v;", k)
		return
	}
	h.seen[t] = len(h.seen)
	fmt.Fprintf(h, "%v %s %s ", k, t.PkgPath(), t.Name())
	switch k {
	case reflect.Struct:
		h.fields(t)
		return
	case reflect.Array:
		fmt.Fprintf(h, "%d ", t.Len())
	case reflect.Map:
		h.add(t.Key())
	}
	h.add(t.Elem())
}

func (h structureHash) fields(t reflect.Type) {
	fmt.Fprint(h, "{")
	for f := range t.Fields() {
		if f.IsExported() || f.Anonymous && f.Type.Kind() == reflect.Struct {
			fmt.Fprintf(h, "%s %v %q %q ", f.Name, f.Anonymous, f.Tag.Get("json"), f.Tag.Get("protobuf"))
			h.add(f.Type)
		}
	}
	fmt.Fprint(h, "}")
}
