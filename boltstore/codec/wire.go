package codec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
	"github.com/vmihailenco/msgpack/v5/msgpcode"
)

const (
	// maxDepth bounds how deep values may be nested, as Kubernetes does for JSON.
	maxDepth = 10_000

	// maxAhead is how many elements are allocated before they are read.
	maxAhead = 256

	// maxKeys is how many keys an idle encoder has room for.
	maxKeys = 4096
)

var errDepth = errors.New("nested too deep")

// encoder is a msgpack encoder that appends to a slice.
type encoder struct {
	*msgpack.Encoder
	out   appender
	depth int
	keys  []string // stack of the keys to write, in maps begun
}

type appender []byte

func (a *appender) Write(b []byte) (int, error) { *a = append(*a, b...); return len(b), nil }
func (a *appender) WriteByte(b byte) error      { *a = append(*a, b); return nil }

var encoders = sync.Pool{New: func() any { return &encoder{Encoder: msgpack.NewEncoder(nil)} }}

// appendValue appends the output of write to dst, or nothing if write fails.
func appendValue(dst []byte, write func(*encoder) error) ([]byte, error) {
	e := encoders.Get().(*encoder)
	defer encoders.Put(e)
	e.out, e.depth, e.keys = dst, 0, e.keys[:0]
	e.Reset(&e.out)
	err := write(e)
	out := e.out
	e.out = nil
	if cap(e.keys) > maxKeys {
		e.keys = nil
	}
	clear(e.keys[:cap(e.keys)])
	if err != nil {
		return dst, err
	}
	return out, nil
}

// enter is called before a nested value, leave after it unless it failed.
func (e *encoder) enter() error {
	if e.depth == maxDepth {
		return fmt.Errorf("%w: %w", ErrUnsupported, errDepth)
	}
	e.depth++
	return nil
}

func (e *encoder) leave() { e.depth-- }

// decoder is a msgpack decoder that trusts no length.
type decoder struct {
	*msgpack.Decoder
	data  []byte
	r     *bytes.Reader // over data
	depth int
}

var decoders = sync.Pool{New: func() any {
	r := bytes.NewReader(nil)
	return &decoder{Decoder: msgpack.NewDecoder(r), r: r}
}}

// decodeValue calls read, which must read all of data.
func decodeValue(data []byte, read func(*decoder) error) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	d.data, d.depth = data, 0
	d.r.Reset(data)
	d.Reset(d.r)
	err := read(d)
	if err == nil && d.r.Len() > 0 {
		err = fmt.Errorf("%w: %d bytes too many", ErrDamaged, d.r.Len())
	}
	d.data = nil
	d.r.Reset(nil)
	return err
}

func (d *decoder) enter() error {
	if d.depth == maxDepth {
		return fmt.Errorf("%w: %w", ErrDamaged, errDepth)
	}
	d.depth++
	return nil
}

func (d *decoder) leave() { d.depth-- }

// damaged wraps an error of the msgpack decoder.
func (d *decoder) damaged(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: before byte %d: %w", ErrDamaged, len(d.data)-d.r.Len(), err)
}

// length checks a length n. Each element takes at least one of the remaining bytes.
func (d *decoder) length(n int, err error) (int, error) {
	if err != nil {
		return 0, d.damaged(err)
	}
	if n < 0 || n > d.r.Len() {
		return 0, d.damaged(fmt.Errorf("length of %d, %d bytes left", n, d.r.Len()))
	}
	return n, nil
}

func (d *decoder) arrayLen() (int, error) { return d.length(d.DecodeArrayLen()) }
func (d *decoder) mapLen() (int, error)   { return d.length(d.DecodeMapLen()) }

// view reads a string or bytes. The result aliases data.
func (d *decoder) view() ([]byte, error) {
	n, err := d.length(d.DecodeBytesLen())
	if err != nil {
		return nil, err
	}
	start := len(d.data) - d.r.Len()
	_, err = d.r.Seek(int64(n), io.SeekCurrent)
	return d.data[start : start+n : start+n], err
}

func (d *decoder) string() (string, error) {
	b, err := d.view()
	return string(b), err
}

// int reads an integer, and refuses other values that msgpack would convert.
func (d *decoder) int() (int64, error) {
	c, err := d.PeekCode()
	if err != nil {
		return 0, d.damaged(err)
	}
	n, err := d.DecodeInt64()
	if err == nil && (c == msgpcode.Nil || c == msgpcode.Uint64 && n < 0) {
		err = fmt.Errorf("code %#x for an int64", c)
	}
	return n, d.damaged(err)
}
