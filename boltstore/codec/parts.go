package codec

import (
	"reflect"
	"strings"
	"sync"
)

// A type may write and read itself: its own marshalers may leave out, redact or
// round what a value holds, and no look at the type tells. So they are used only
// for what can be reached in no other way. Where all of a value is in exported
// fields, elements and numbers, these are stored.

// pairOf tells which marshalers t has, both halves of them.
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

// readsItself says whether t has half of a pair that reads.
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

// inParts says whether the parts of t, each stored in its own form, are all of
// a value of t.
func inParts(t reflect.Type) bool {
	if known, ok := partsKnown.Load(t); ok {
		return known.(bool)
	}
	is := parts{}.of(t)
	partsKnown.Store(t, is)
	return is
}

// parts has the types that are being looked at, which count as whole: a type
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

// fields of a struct that embeds what has marshalers are stored each, whatever
// is not exported: the marshalers may be the embedded one's, which know nothing
// of the others.
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

// isHidden says whether a field of t can be neither read nor set from here.
// What protobuf's messages keep for themselves does not count.
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

// flattened says whether the fields of an embedded struct are stored as those
// of the struct around it. One that is not exported has no other way.
func flattened(f reflect.StructField) bool {
	_, tagged := jsonName(f)
	_, leaf := leaves[f.Type]
	return f.Anonymous && f.Type.Kind() == reflect.Struct && (!tagged || !f.IsExported()) &&
		!leaf && (plain[f.Type] || pairOf(f.Type) == byFields)
}

// borrowed names an embedded field whose marshalers may be those that t seems
// to have, and which would leave out t's other fields.
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

// partly says whether something below t has marshalers that are not used. Once
// they were: such types have a form and an ID of their own.
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
