package codec

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

func scalarPlan(k reflect.Kind) plan {
	switch k {
	case reflect.String:
		return plan{
			encode: func(e *encoder, v reflect.Value) error { return e.EncodeString(v.String()) },
			decode: func(d *decoder, v reflect.Value) error {
				s, err := d.string()
				v.SetString(s)
				return err
			},
		}
	case reflect.Bool:
		return plan{
			encode: func(e *encoder, v reflect.Value) error { return e.EncodeBool(v.Bool()) },
			decode: func(d *decoder, v reflect.Value) error {
				b, err := d.DecodeBool()
				v.SetBool(b)
				return d.damaged(err)
			},
		}
	case reflect.Float32, reflect.Float64:
		return plan{
			encode: func(e *encoder, v reflect.Value) error { return e.EncodeFloat64(v.Float()) },
			decode: func(d *decoder, v reflect.Value) error {
				f, err := d.DecodeFloat64()
				v.SetFloat(f)
				return d.damaged(err)
			},
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return plan{
			encode: func(e *encoder, v reflect.Value) error { return e.EncodeInt(v.Int()) },
			decode: func(d *decoder, v reflect.Value) error {
				n, err := d.int()
				if err == nil && v.OverflowInt(n) {
					err = d.damaged(fmt.Errorf("%d for an %v", n, v.Type()))
				}
				v.SetInt(n)
				return err
			},
		}
	}
	return plan{
		encode: func(e *encoder, v reflect.Value) error { return e.EncodeUint(v.Uint()) },
		decode: func(d *decoder, v reflect.Value) error {
			n, err := d.uint()
			if err == nil && v.OverflowUint(n) {
				err = d.damaged(fmt.Errorf("%d for an %v", n, v.Type()))
			}
			v.SetUint(n)
			return err
		},
	}
}

// orNil makes encode write, and decode read, a nil for v.IsNil.
func orNil(p plan) plan {
	return plan{
		nilable: true,
		encode: func(e *encoder, v reflect.Value) error {
			if v.IsNil() {
				return e.EncodeNil()
			}
			if err := e.enter(); err != nil {
				return err
			}
			defer e.leave()
			return p.encode(e, v)
		},
		decode: func(d *decoder, v reflect.Value) error {
			if isNil, err := d.isNil(); isNil || err != nil {
				return err
			}
			if err := d.enter(); err != nil {
				return err
			}
			defer d.leave()
			return p.decode(d, v)
		},
	}
}

func (b *builder) pointerPlan(p *plan, t reflect.Type) error {
	elem, err := b.plan(t.Elem())
	if err != nil {
		return err
	}
	*p = orNil(plan{
		encode: func(e *encoder, v reflect.Value) error {
			if elem.nilable {
				if err := e.EncodeArrayLen(1); err != nil {
					return err
				}
			}
			return elem.encode(e, v.Elem())
		},
		decode: func(d *decoder, v reflect.Value) error {
			if elem.nilable {
				if err := d.arrayOf(1); err != nil {
					return err
				}
			}
			v.Set(reflect.New(t.Elem()))
			return elem.decode(d, v.Elem())
		},
	})
	return nil
}

func (b *builder) slicePlan(p *plan, t reflect.Type) error {
	if t.Elem().Kind() == reflect.Uint8 && !isLeaf(t.Elem()) {
		*p = bytesPlan
		return nil
	}
	elem, err := b.plan(t.Elem())
	if err != nil {
		return err
	}
	ahead := max(1, min(maxAhead, 4096/max(1, int(t.Elem().Size()))))
	*p = orNil(plan{
		encode: func(e *encoder, v reflect.Value) error { return e.elements(elem, v) },
		decode: func(d *decoder, v reflect.Value) error {
			n, err := d.arrayLen()
			if err != nil {
				return err
			}
			v.Set(reflect.MakeSlice(t, 0, min(n, ahead)))
			for i := range n {
				if i == v.Cap() {
					v.Grow(min(n-i, i))
				}
				v.SetLen(i + 1)
				if err := elem.decode(d, v.Index(i)); err != nil {
					return fmt.Errorf("[%d]: %w", i, err)
				}
			}
			return nil
		},
	})
	return nil
}

func (b *builder) arrayPlan(p *plan, t reflect.Type) error {
	elem, err := b.plan(t.Elem())
	if err != nil {
		return err
	}
	p.encode = func(e *encoder, v reflect.Value) error { return e.elements(elem, v) }
	p.decode = func(d *decoder, v reflect.Value) error {
		if err := d.arrayOf(t.Len()); err != nil {
			return err
		}
		for i := range t.Len() {
			if err := elem.decode(d, v.Index(i)); err != nil {
				return fmt.Errorf("[%d]: %w", i, err)
			}
		}
		return nil
	}
	return nil
}

func (e *encoder) elements(elem *plan, v reflect.Value) error {
	if err := e.EncodeArrayLen(v.Len()); err != nil {
		return err
	}
	for i := range v.Len() {
		if err := elem.encode(e, v.Index(i)); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (b *builder) mapPlan(p *plan, t reflect.Type) error {
	key, err := keyPlan(t.Key())
	if err != nil {
		return err
	}
	elem, err := b.plan(t.Elem())
	if err != nil {
		return err
	}
	*p = orNil(plan{
		encode: func(e *encoder, v reflect.Value) error { return e.entries(key, elem, v) },
		decode: func(d *decoder, v reflect.Value) error {
			n, err := d.mapLen()
			if err != nil {
				return err
			}
			v.Set(reflect.MakeMapWithSize(t, min(n, maxAhead)))
			for range n {
				s, err := d.string()
				if err != nil {
					return err
				}
				k, x := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
				if err := key.parse(k, s); err != nil {
					return d.damaged(fmt.Errorf("key %.40q: %w", s, err))
				}
				if err := elem.decode(d, x); err != nil {
					return fmt.Errorf("[%.40q]: %w", s, err)
				}
				v.SetMapIndex(k, x)
			}
			return nil
		},
	})
	return nil
}

type mapEntry struct {
	key  string
	elem reflect.Value
}

// entries writes a map in the order of its keys.
func (e *encoder) entries(key keys, elem *plan, v reflect.Value) error {
	if err := e.EncodeMapLen(v.Len()); err != nil {
		return err
	}
	all := make([]mapEntry, 0, v.Len())
	elems := reflect.MakeSlice(reflect.SliceOf(v.Type().Elem()), v.Len(), v.Len())
	for it := v.MapRange(); it.Next(); {
		s, err := key.format(it.Key())
		if err != nil {
			return err
		}
		x := elems.Index(len(all))
		x.SetIterValue(it)
		all = append(all, mapEntry{s, x})
	}
	slices.SortFunc(all, func(a, b mapEntry) int { return strings.Compare(a.key, b.key) })
	for i, x := range all {
		if i > 0 && all[i-1].key == x.key {
			return fmt.Errorf("%w: two keys with the text %q", ErrUnsupported, x.key)
		}
		if err := e.EncodeString(x.key); err != nil {
			return err
		}
		if err := elem.encode(e, x.elem); err != nil {
			return fmt.Errorf("[%q]: %w", x.key, err)
		}
	}
	return nil
}

// keys turns map keys into strings and back.
type keys struct {
	format func(reflect.Value) (string, error)
	parse  func(reflect.Value, string) error
}

func keyPlan(t reflect.Type) (keys, error) {
	switch k := t.Kind(); {
	case k == reflect.String:
		return keys{
			func(v reflect.Value) (string, error) { return v.String(), nil },
			func(v reflect.Value, s string) error { v.SetString(s); return nil },
		}, nil
	case k >= reflect.Int && k <= reflect.Int64:
		return keys{
			func(v reflect.Value) (string, error) { return strconv.FormatInt(v.Int(), 10), nil },
			func(v reflect.Value, s string) error {
				n, err := strconv.ParseInt(s, 10, t.Bits())
				v.SetInt(n)
				return err
			},
		}, nil
	case k >= reflect.Uint && k <= reflect.Uintptr:
		return keys{
			func(v reflect.Value) (string, error) { return strconv.FormatUint(v.Uint(), 10), nil },
			func(v reflect.Value, s string) error {
				n, err := strconv.ParseUint(s, 10, t.Bits())
				v.SetUint(n)
				return err
			},
		}, nil
	case reflect.PointerTo(t).Implements(toText) && reflect.PointerTo(t).Implements(fromText):
		return keys{formatText, parseText}, nil
	}
	return keys{}, fmt.Errorf("%w: map key %v", ErrUnsupported, t)
}
