package kubeapi

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
)

// streamList answers with a page whose objects are read while they are sent. Few of them are
// in memory at a time. In protobuf all may be, as long as there is room (encoded). An
// error after the first bytes breaks the connection.
func (r *Request) streamList(p *Page, q Query) error {
	size := 0
	if r.enc.proto {
		m := &measured{part: Part{Of: &encoded}}
		defer m.part.Free()
		if err := m.read(r, p); err != nil {
			return err
		}
		if !m.large {
			return r.writeItems(p, q, m.items)
		}
		size = m.size
	}
	head, tail, err := r.frame(p, q, size)
	if err != nil {
		return err
	}
	w := &answerWriter{r: r}
	defer w.free()
	n, sent, err := r.sendItems(w, p, head, tail)
	if want := len(head) + size + len(tail); err == nil && r.enc.proto && sent != want {
		err = fmt.Errorf("the list of %s had %d bytes, and has %d when it is read again", r.Type.GroupResource(),
			want, sent)
	}
	if err == nil {
		err = w.end()
	}
	r.count(n)
	switch {
	case err == nil:
	case !w.begun:
		return err
	default:
		if r.Context().Err() == nil && !errors.Is(err, errClientLeft) {
			r.h.failed(r.Request, err)
		}
		panic(http.ErrAbortHandler)
	}
	return nil
}

// sendItems writes the page between head and tail. It returns how many objects and how many
// bytes were written.
func (r *Request) sendItems(w io.Writer, p *Page, head, tail []byte) (n, sent int, err error) {
	write := func(parts ...[]byte) error {
		for _, b := range parts {
			wrote, err := w.Write(b)
			if sent += wrote; err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(head); err != nil {
		return n, sent, err
	}
	for objs, err := range p.Each {
		if err != nil {
			return n, sent, err
		}
		items, err := r.items(objs)
		if err != nil {
			return n, sent, err
		}
		for i := range objs {
			if err := write(r.enc.before(n), items[2*i], items[2*i+1]); err != nil {
				return n, sent, err
			}
			n++
		}
	}
	err = write(tail)
	return n, sent, err
}

// encoded are lists in protobuf.
var encoded = Room{Most: 64 << 20}

// measured are a page's items in protobuf, whose size comes first. If there is no room for
// them, they are read again while they are sent.
type measured struct {
	part  Part
	items [][]byte
	size  int
	large bool // there was no room for the items
}

func (m *measured) read(r *Request, p *Page) error {
	for objs, err := range p.Each {
		if err != nil {
			return err
		}
		items, err := r.items(objs)
		if err != nil {
			return err
		}
		n := 0
		for _, b := range items {
			n += len(b)
		}
		m.size += n
		if m.large = m.large || !m.part.Take(n); m.large {
			m.part.Free()
			m.items = nil
			continue
		}
		if r.enc.partial {
			for i := 1; i < len(items); i += 2 {
				items[i] = bytes.Clone(items[i]) // it is a part of the object
			}
		}
		m.items = append(m.items, items...)
	}
	return nil
}

var errClientLeft = errors.New("the client left")

// answerWriter keeps the beginning of an answer until it is clear whether the answer is
// large enough to be compressed.
type answerWriter struct {
	r     *Request
	start []byte
	begun bool
	gz    *gzip.Writer
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if !w.begun {
		if len(w.start)+len(b) <= gzipThreshold {
			w.start = append(w.start, b...)
			return len(b), nil
		}
		w.begin(true)
		if err := w.send(w.start); err != nil {
			return 0, err
		}
		w.start = nil
	}
	return len(b), w.send(b)
}

func (w *answerWriter) begin(large bool) {
	w.begun = true
	h := w.r.w.Header()
	h.Set("Content-Type", w.r.enc.media())
	switch {
	case !large:
		h.Set("Content-Length", strconv.Itoa(len(w.start)))
	case acceptsGzip(w.r.Header):
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		w.gz = gzipWriters.Get().(*gzip.Writer)
		w.gz.Reset(w.r.w)
	}
	w.r.w.WriteHeader(http.StatusOK)
}

func (w *answerWriter) send(b []byte) error {
	var out io.Writer = w.r.w
	if w.gz != nil {
		out = w.gz
	}
	if _, err := out.Write(b); err != nil {
		return fmt.Errorf("%w: %w", errClientLeft, err)
	}
	return nil
}

// end sends the rest.
func (w *answerWriter) end() error {
	if !w.begun {
		w.begin(false)
		return w.send(w.start)
	}
	if w.gz != nil {
		return w.gz.Close()
	}
	return nil
}

func (w *answerWriter) free() {
	if w.gz != nil {
		gzipWriters.Put(w.gz)
	}
}
