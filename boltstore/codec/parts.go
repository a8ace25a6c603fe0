package codec

import (
	"reflect"
	"strings"
	"sync"
)

// A type's own marshalers may leave out, redact or round parts of a value, and the type
// does not show it. So they are used only for parts that cannot be reached otherwise. If
// all of a value is in exported fields, elements and numbers, these are stored.

// pairOf returns which marshalers t has with both halves.
func pairOf(t reflect.Type) marshaling {
	p := reflect.PointerTo(t)
	switch {
	case t.Kind() == reflect.Pointer || t.Kind() == reflect.Interface:
	case p.Implements(toJSON) && p.Implements(fromJSON):
		return byJSON
	case p.Implements(toText) && p.Implements(fromText):
		return byText
	}
	return byFields
}

// readsItself says whether t has the reading half of a pair.
func readsItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(fromJSON) || p.Implements(fromText)
}

// marshals says whether t has any marshaler.
func marshals(t reflect.Type) bool {
	p := t
	if t.Kind() != reflect.Pointer {
		p = reflect.PointerTo(t)
	}
	return p.Implements(toJSON) || p.Implements(fromJSON) || p.Implements(toText) || p.Implements(fromText)
}

var partsKnown sync.Map // reflect.Type → bool

// inParts says whether the parts of t, each stored in its own form, make up a whole
// value of t.
func inParts(t reflect.Type) bool {
	if known, ok := partsKnown.Load(t); ok {
		return known.(bool)
	}
	is := parts{}.of(t)
	partsKnown.Store(t, is)
	return is
}

// parts has the types whose examination has begun. They count as whole, since a type
// may contain itself.
type parts map[reflect.Type]bool

// whole says whether a value of t can be stored: as parts, or by marshalers.
func (p parts) whole(t reflect.Type) bool {
	_, leaf := leaves[t]
	return leaf || plain[t] || pairOf(t) != byFields || p.of(t)
}

func (p parts) of(t reflect.Type) bool {
	if p[t] {
		return true
	}
	p[t] = true
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return p.whole(t.Elem())
	case reflect.Map:
		_, err := keyPlan(t.Key())
		return err == nil && p.whole(t.Elem())
	case reflect.Struct:
		return p.fields(t)
	}
	return t.Kind() == reflect.String || t.Kind() >= reflect.Bool && t.Kind() <= reflect.Float64
}

// fields says whether all fields of t can be stored. Hidden fields do not count if t
// embeds a type with marshalers: t's marshalers may be that type's, which do not know
// the other fields.
func (p parts) fields(t reflect.Type) bool {
	promoted := embedsMarshaler(t)
	for f := range t.Fields() {
		if isHidden(t, f) && !promoted || !p.whole(f.Type) {
			return false
		}
	}
	return true
}

func embedsMarshaler(t reflect.Type) bool {
	for f := range t.Fields() {
		if f.Anonymous && f.IsExported() && marshals(f.Type) {
			return true
		}
	}
	return false
}

// isHidden says whether a field of t can neither be read nor set from here. Internal
// fields of protobuf messages do not count.
func isHidden(t reflect.Type, f reflect.StructField) bool {
	switch {
	case f.IsExported() || f.Name == "_" || f.Type.Size() == 0:
		return false
	case isMessage(t) && (f.Name == "sizeCache" || strings.HasPrefix(f.Type.PkgPath(), "google.golang.org/protobuf/")):
		return false
	}
	return !flattened(f)
}

// isMessage says whether t is a message of Go's protobuf.
func isMessage(t reflect.Type) bool {
	_, ok := reflect.PointerTo(t).MethodByName("ProtoReflect")
	return ok
}

// flattened says whether the fields of an embedded struct are stored as fields of the
// struct around it. An embedded struct that is not exported can be stored in no other
// way.
func flattened(f reflect.StructField) bool {
	_, tagged := jsonName(f)
	_, leaf := leaves[f.Type]
	return f.Anonymous && f.Type.Kind() == reflect.Struct && (!tagged || !f.IsExported()) &&
		!leaf && (plain[f.Type] || pairOf(f.Type) == byFields)
}

// borrowed names an embedded field whose marshalers t may have inherited. They would
// leave out t's other fields.
func borrowed(t reflect.Type) (name string, may bool) {
	if t.Kind() != reflect.Struct || t.NumField() == 1 {
		return "", false
	}
	for f := range t.Fields() {
		if f.Anonymous && marshals(f.Type) {
			return f.Name, true
		}
	}
	return "", false
}

// partly says whether a type below t has marshalers that are not used. An earlier form
// used them, so such types have their own form and ID.
func partly(t reflect.Type, seen map[reflect.Type]bool) bool {
	if _, leaf := leaves[t]; leaf || plain[t] || seen[t] || marshaledBy(t) != byFields {
		return false
	}
	seen[t] = true
	if pairOf(t) != byFields {
		return true
	}
	switch t.Kind() {
	case reflect.Map:
		return partly(t.Key(), seen) || partly(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return partly(t.Elem(), seen)
	case reflect.Struct:
		for f := range t.Fields() {
			if partly(f.Type, seen) {
				return true
			}
		}
	}
	return false
}
