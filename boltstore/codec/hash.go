package codec

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"reflect"
	"sync"
)

// StructureHash is a fingerprint of a Go type's structure: the exported fields with their
// names, json and protobuf tags and types, at every depth. It is the same in every
// process. It changes if a field anywhere below t is added, removed, renamed, moved or
// retyped. An object stored with the earlier type may then lack fields that the API
// server has.
//
// A type that marshals itself counts with its package path, its name and its exported
// fields. Types of metav1 and resource that hide their fields count with the name only,
// so that build tags make no difference.
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

func (h structureHash) add(t reflect.Type) {
	if t == nil {
		fmt.Fprint(h, "nil;")
		return
	}
	_, leaf := leaves[t]
	if leaf || marshaledBy(t) != byFields {
		fmt.Fprintf(h, "leaf %d %s %s;", marshaledBy(t), t.PkgPath(), t.Name())
	}
	if leaf {
		return
	}
	if n, ok := h.seen[t]; ok {
		fmt.Fprintf(h, "type %d;", n)
		return
	}
	switch k := t.Kind(); k {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		h.begin(t)
		if k == reflect.Array {
			fmt.Fprintf(h, "%d ", t.Len())
		}
		if k == reflect.Map {
			h.add(t.Key())
		}
		h.add(t.Elem())
	case reflect.Struct:
		h.begin(t)
		h.fields(t)
	case reflect.Interface:
		fmt.Fprintf(h, "interface %s %s;", t.PkgPath(), t.Name())
	default:
		fmt.Fprintf(h, "%v;", k)
	}
}

func (h structureHash) begin(t reflect.Type) {
	h.seen[t] = len(h.seen)
	fmt.Fprintf(h, "%v %s %s ", t.Kind(), t.PkgPath(), t.Name())
}

func (h structureHash) fields(t reflect.Type) {
	fmt.Fprint(h, "{")
	for f := range t.Fields() {
		if !f.IsExported() && !(f.Anonymous && f.Type.Kind() == reflect.Struct) {
			continue
		}
		if _, tagged := jsonName(f); tagged && !f.IsExported() {
			fmt.Fprint(h, "kept ") // an earlier form did not keep it
		}
		fmt.Fprintf(h, "%s %v %q %q ", f.Name, f.Anonymous, f.Tag.Get("json"), f.Tag.Get("protobuf"))
		h.add(f.Type)
	}
	fmt.Fprint(h, "}")
}
