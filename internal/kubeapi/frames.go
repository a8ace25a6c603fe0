package kubeapi

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// A client that does not read keeps a frame's buffer, and a piece of the object that it is
// being sent. It keeps no object: the same one is sent to many, and read again for those
// that are slow.
const pieceSize = 64 << 10

var (
	frames = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, 16<<10) }}
	pieces = sync.Pool{New: func() any { return new([pieceSize]byte) }}
)

// send sends one event. The client gets it at the next flush, or before.
func (st *stream) send(kind watch.EventType, object []byte) error {
	return st.sendAgain(kind, object, st.enc, nil)
}

// sendAgain is send for an object that again, unless nil, returns once more. enc is its form.
func (st *stream) sendAgain(kind watch.EventType, object []byte, enc encoding, again func() (*Object, error)) error {
	if st.enc.table != nil {
		st.enc.table.known = true
	}
	if st.out == nil {
		st.out = frames.Get().(*bufio.Writer)
		st.out.Reset(st.Request.w)
	}
	head, tail := st.frame(kind, len(object))
	_, err := st.out.Write(head)
	switch {
	case err != nil:
	case again == nil || len(object) <= pieceSize:
		_, err = st.out.Write(object)
	default:
		err = st.sendPieces(len(object), enc, again)
	}
	if err == nil {
		_, err = st.out.WriteString(tail)
	}
	return err
}

// frame is what stands before and after an object of that size: a line of JSON, or a
// WatchEvent message after its length in four bytes.
func (st *stream) frame(kind watch.EventType, size int) (head []byte, tail string) {
	if !st.enc.proto {
		return fmt.Appendf(nil, `{"type":%q,"object":`, kind), "}\n"
	}
	raw := binary.AppendUvarint([]byte{1<<3 | 2}, uint64(size)) // runtime.RawExtension
	msg := appendBytes(nil, 1, []byte(kind))
	msg = binary.AppendUvarint(append(msg, 2<<3|2), uint64(len(raw)+size))
	head = binary.BigEndian.AppendUint32(nil, uint32(len(msg)+len(raw)+size))
	return append(append(head, msg...), raw...), ""
}

// sendPieces writes an object of that size, and holds a piece of it at a time.
func (st *stream) sendPieces(size int, enc encoding, again func() (*Object, error)) error {
	piece := pieces.Get().(*[pieceSize]byte)
	defer pieces.Put(piece)
	for sent := 0; sent < size; {
		n, err := st.piece(piece[:], sent, size, enc, again)
		if err != nil { // the file no longer has the object, and the client has a part of it
			return http.ErrAbortHandler
		}
		if _, err := st.out.Write(piece[:n]); err != nil {
			return err
		}
		sent += n
	}
	return nil
}

// piece copies what follows after the bytes that were sent. It is a function, so that none
// of the object is in use once it returns.
func (st *stream) piece(into []byte, sent, size int, enc encoding, again func() (*Object, error)) (int, error) {
	o, err := again()
	if err != nil {
		return 0, err
	}
	object, err := st.Type.object(o, enc)
	if err == nil && len(object) != size {
		err = fmt.Errorf("the object has %d bytes, and had %d", len(object), size)
	}
	if err != nil {
		return 0, err
	}
	return copy(into, object[sent:]), nil
}

// flush gives the client what was sent.
func (st *stream) flush() (err error) {
	if st.out != nil {
		err = st.out.Flush()
		st.out.Reset(nil)
		frames.Put(st.out)
		st.out = nil
	}
	if f, ok := st.Request.w.(http.Flusher); ok {
		f.Flush()
	}
	return err
}
