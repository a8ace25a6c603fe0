package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/kubewake/kubewake/internal/listing"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// protoList is a list in protobuf:
//
//	"k8s\0", then a runtime.Unknown:
//	  1 TypeMeta
//	  2 the list:
//	      1 ListMeta
//	      2 an item, any number of times:
//	          1 ObjectMeta: 1 name, 3 namespace, 5 uid, 6 resourceVersion
//	  and nothing more but empty fields
type protoList struct {
	from source
	r    *bufio.Reader
	left uint64 // bytes of the message
	item bytes.Buffer

	begun bool   // the head has been read
	typ   []byte // TypeMeta of the Unknown
	meta  []byte // ListMeta, nil before it has come
	added []byte // items of the other list
}

// source counts the bytes that are read, and keeps the error.
type source struct {
	io.Reader
	n   int64
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.Reader.Read(p)
	s.n += int64(n)
	if err != nil {
		s.err = err
	}
	return n, err
}

const (
	protoMagic = "k8s\x00"
	mostType   = 4 << 10
	mostMeta   = 1 << 20
	mostItem   = 1 << 30
)

func newProtoList(r io.Reader) *protoList {
	l := &protoList{from: source{Reader: r}}
	l.r = bufio.NewReaderSize(&l.from, 64<<10)
	return l
}

// trouble is the error of the link. If the answer came whole, it is ErrForm.
func (l *protoList) trouble(err error) error {
	if l.from.err != nil && !errors.Is(l.from.err, io.EOF) {
		return l.from.err
	}
	if errors.Is(err, ErrForm) {
		return err
	}
	return fmt.Errorf("%w: %v", ErrForm, err)
}

// field reads a field's number and the length of its bytes.
func (l *protoList) field() (num protowire.Number, size uint64, read uint64, err error) {
	tag, err := binary.ReadUvarint(l.r)
	if err != nil {
		return 0, 0, 0, err
	}
	num, typ := protowire.DecodeTag(tag)
	if typ != protowire.BytesType || num <= 0 {
		return 0, 0, 0, fmt.Errorf("%w: field %d of type %d", ErrForm, num, typ)
	}
	if size, err = binary.ReadUvarint(l.r); err != nil {
		return 0, 0, 0, err
	}
	return num, size, uint64(protowire.SizeVarint(tag)) + uint64(protowire.SizeVarint(size)) + size, nil
}

// bytes reads a field's bytes, which are valid until the next call.
func (l *protoList) bytes(size, most uint64) ([]byte, error) {
	l.item.Reset()
	if size > most {
		return nil, fmt.Errorf("%w: a field of %d bytes", ErrForm, size)
	}
	_, err := io.CopyN(&l.item, l.r, int64(size))
	return l.item.Bytes(), err
}

// begin reads the magic and the type, up to the list.
func (l *protoList) begin() error {
	magic := make([]byte, len(protoMagic))
	if _, err := io.ReadFull(l.r, magic); err != nil {
		return err
	}
	if string(magic) != protoMagic {
		return fmt.Errorf("%w: it begins with %q", ErrForm, magic)
	}
	num, size, _, err := l.field()
	if err != nil {
		return err
	}
	if num != 1 {
		return fmt.Errorf("%w: no type", ErrForm)
	}
	typ, err := l.bytes(size, mostType)
	if err != nil {
		return err
	}
	l.typ, l.begun = bytes.Clone(typ), true
	if num, l.left, _, err = l.field(); err != nil {
		return err
	}
	if num != 2 {
		return fmt.Errorf("%w: no message", ErrForm)
	}
	return nil
}

func (l *protoList) next() (listing.Object, []byte, error) {
	id, item, err := l.read()
	if err != nil && err != io.EOF {
		err = l.trouble(err)
	}
	return id, item, err
}

var errShort = fmt.Errorf("%w: it ends early", ErrForm)

// read does the work of next. Its io.EOF means the end of the list and nothing else.
func (l *protoList) read() (id listing.Object, item []byte, err error) {
	if !l.begun {
		if err := l.begin(); err != nil {
			return id, nil, noEOF(err)
		}
	}
	for l.left > 0 {
		num, size, read, err := l.field()
		if err != nil {
			return id, nil, noEOF(err)
		}
		if read > l.left {
			return id, nil, fmt.Errorf("%w: a field beyond the message", ErrForm)
		}
		l.left -= read
		switch {
		case num == 1 && l.meta == nil:
			m, err := l.bytes(size, mostMeta)
			if err != nil {
				return id, nil, noEOF(err)
			}
			l.meta = append([]byte{}, m...)
		case num == 2 && l.meta != nil:
			item, err := l.bytes(size, mostItem)
			if err != nil {
				return id, nil, noEOF(err)
			}
			id, err = protoListed(item)
			return id, item, err
		default:
			return id, nil, fmt.Errorf("%w: field %d of the list", ErrForm, num)
		}
	}
	return id, nil, l.tail()
}

// noEOF turns an end within the list into ErrForm.
func noEOF(err error) error {
	if err == io.EOF {
		return errShort
	}
	return err
}

// tail reads the fields after the list. It returns io.EOF.
func (l *protoList) tail() error {
	for {
		if _, err := l.r.Peek(1); err != nil {
			return err
		}
		num, size, _, err := l.field()
		switch {
		case err != nil:
			return noEOF(err)
		case num <= 2: // clients take the last one
			return fmt.Errorf("%w: a second field %d", ErrForm, num)
		case size > 0:
			return fmt.Errorf("%w: the message is encoded", ErrForm)
		}
	}
}

// protoListed reads the fields of an object's metadata that identify it.
func protoListed(item []byte) (l listing.Object, err error) {
	num, typ, n := protowire.ConsumeTag(item)
	if n < 0 || num != 1 || typ != protowire.BytesType {
		return l, fmt.Errorf("%w: an item without metadata", ErrForm)
	}
	m, n := protowire.ConsumeBytes(item[n:])
	if n < 0 {
		return l, fmt.Errorf("%w: an item's metadata is cut", ErrForm)
	}
	for len(m) > 0 {
		num, typ, n := protowire.ConsumeField(m)
		if n < 0 {
			return l, fmt.Errorf("%w: an item's metadata: %v", ErrForm, protowire.ParseError(n))
		}
		var to *string
		switch num {
		case 1:
			to = &l.Name
		case 3:
			to = &l.Namespace
		case 5:
			to = &l.UID
		case 6:
			to = &l.ResourceVersion
		}
		if to != nil && typ != protowire.BytesType {
			return l, fmt.Errorf("%w: field %d of an item's metadata", ErrForm, num)
		}
		if to != nil {
			v, _ := protowire.ConsumeBytes(m[protowire.SizeTag(num):n])
			*to = string(v)
		}
		m = m[n:]
	}
	return l, nil
}

func (l *protoList) add(item []byte) {
	l.added = protowire.AppendTag(l.added, 2, protowire.BytesType)
	l.added = protowire.AppendBytes(l.added, item)
}

func (l *protoList) other() []byte {
	msg := protowire.AppendTag(nil, 1, protowire.BytesType)
	msg = protowire.AppendBytes(msg, l.meta)
	b := append([]byte(protoMagic), 1<<3|2)
	b = protowire.AppendBytes(b, l.typ)
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, uint64(len(msg)+len(l.added)))
	return append(append(b, msg...), l.added...)
}

// held is a quarter of the list: the next page of as many items may have more changes.
func (l *protoList) held() int64 { return l.from.n / 4 }

// head returns the kind and the metadata of the list that has been read.
func (l *protoList) head() (kind string, about metav1.ListMeta, err error) {
	var typ runtime.TypeMeta
	if err = typ.Unmarshal(l.typ); err == nil {
		err = about.Unmarshal(l.meta)
	}
	if err != nil {
		err = fmt.Errorf("%w: %v", ErrForm, err)
	}
	return typ.Kind, about, err
}
