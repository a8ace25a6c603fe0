package codec

import (
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
)

type structCodec struct {
	typ  reflect.Type // of the pointer
	plan *plan        // of the struct
	id   byte
}

func (c structCodec) ID() byte   { return c.id }
func (structCodec) Name() string { return "struct" }

func (c structCodec) Append(dst []byte, obj runtime.Object) ([]byte, error) {
	v, err := pointerOf(c.typ, obj)
	if err != nil {
		return dst, err
	}
	dst, err = appendValue(dst, func(e *encoder) (err error) {
		defer caught(&err, ErrUnsupported)
		return c.plan.encode(e, v.Elem())
	})
	if err != nil {
		return dst, fmt.Errorf("%v: %w", c.typ, err)
	}
	return dst, nil
}

func (c structCodec) Decode(data []byte) (runtime.Object, error) {
	v := reflect.New(c.typ.Elem())
	err := decodeValue(data, func(d *decoder) (err error) {
		defer caught(&err, ErrDamaged)
		return c.plan.decode(d, v.Elem())
	})
	if err != nil {
		return nil, fmt.Errorf("%v: %w", c.typ, err)
	}
	return v.Interface().(runtime.Object), nil
}

// caught turns a panic in a type's own marshalers into an error.
func caught(err *error, as error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: a marshaler panicked: %v", as, p)
	}
}

// field is a field of a struct, or of one embedded in it.
type field struct {
	name  string
	index []int
	plan  *plan
}

// structPlan encodes the fields that are not zero, each after its name.
func (b *builder) structPlan(p *plan, t reflect.Type) error {
	var fields []field
	var hidden []field
	byName := map[string]int{}
	err := eachField(t, nil, func(f reflect.StructField, name string) error {
		if name == "" {
			hidden = append(hidden, field{name: f.Name, index: f.Index})
			return nil
		}
		fp, err := b.plan(f.Type)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Name, err)
		}
		for _, taken := byName[name]; taken; _, taken = byName[name] {
			name += "'"
		}
		byName[name] = len(fields)
		fields = append(fields, field{name, f.Index, fp})
		return nil
	})
	if err != nil {
		return err
	}
	if len(hidden) > 0 && pairOf(t) == byFields && readsItself(t) {
		return fmt.Errorf("%w: %v reads itself and may fill %s, which is not exported and which it has no marshaler for", ErrUnsupported, t, hidden[0].name)
	}
	p.encode = func(e *encoder, v reflect.Value) error {
		if err := e.enter(); err != nil {
			return err
		}
		defer e.leave()
		for i := range hidden {
			if !v.FieldByIndex(hidden[i].index).IsZero() {
				return fmt.Errorf("%s: %w: it is set, and not exported", hidden[i].name, ErrUnsupported)
			}
		}
		return e.fields(fields, v)
	}
	p.decode = func(d *decoder, v reflect.Value) error {
		if err := d.enter(); err != nil {
			return err
		}
		defer d.leave()
		return d.fields(fields, byName, v)
	}
	return nil
}

func (e *encoder) fields(fields []field, v reflect.Value) error {
	start := len(e.set)
	for i := range fields {
		if !v.FieldByIndex(fields[i].index).IsZero() {
			e.set = append(e.set, i)
		}
	}
	end := len(e.set)
	if err := e.EncodeMapLen(end - start); err != nil {
		return err
	}
	for i := start; i < end; i++ {
		f := &fields[e.set[i]]
		if err := e.EncodeString(f.name); err != nil {
			return err
		}
		if err := f.plan.encode(e, v.FieldByIndex(f.index)); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	e.set = e.set[:start]
	return nil
}

func (d *decoder) fields(fields []field, byName map[string]int, v reflect.Value) error {
	n, err := d.mapLen()
	if err != nil {
		return err
	}
	for range n {
		name, err := d.view()
		if err != nil {
			return err
		}
		i, ok := byName[string(name)]
		if !ok {
			if err := d.skip(); err != nil { // of an earlier or later structure of the type
				return fmt.Errorf("%.40q: %w", name, err)
			}
			continue
		}
		if err := fields[i].plan.decode(d, v.FieldByIndex(fields[i].index)); err != nil {
			return fmt.Errorf("%s: %w", fields[i].name, err)
		}
	}
	return nil
}

// eachField calls f for each exported field of t and of the structs embedded in it,
// with its index from t and its name. Embedded pointers, and embedded types that are
// not stored as their fields, count as fields themselves. Hidden fields have no name.
func eachField(t reflect.Type, index []int, f func(reflect.StructField, string) error) error {
	for sf := range t.Fields() {
		hidden := isHidden(t, sf)
		sf.Index = append(slices.Clone(index), sf.Index...)
		name, _ := jsonName(sf)
		var err error
		switch {
		case flattened(sf):
			err = eachField(sf.Type, sf.Index, f)
		case hidden:
			err = f(sf, "")
		case sf.IsExported():
			err = f(sf, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
