package measured

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Wire counts what a client sends and receives.
type Wire struct {
	requests atomic.Int64
	bodies   atomic.Int64 // bytes of answers as they came: compressed
	conns    atomic.Int64 // bytes both ways beneath HTTP: TLS, headers and bodies

	mu               sync.Mutex
	expired, resumed time.Time
}

// Watching returns the time when the server last said that a version is too old, and the
// time when a watch was open again after that: when the server had accepted it or, if the
// watch begins with a list, when the list had ended.
func (w *Wire) Watching() (expired, resumed time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.expired, w.resumed
}

// saw notes the data of a watch, or that the watch was accepted.
func (w *Wire) saw(data []byte, open bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case bytes.Contains(data, []byte("too old resource version")):
		w.expired, w.resumed = time.Now(), time.Time{}
	case w.resumed.IsZero() && (open || bytes.Contains(data, []byte(metav1.InitialEventsAnnotationKey))):
		w.resumed = time.Now()
	}
}

// Traffic is a reading of a Wire.
type Traffic struct{ Requests, Bodies, Conns int64 }

// Read returns the counts so far.
func (w *Wire) Read() Traffic {
	return Traffic{w.requests.Load(), w.bodies.Load(), w.conns.Load()}
}

// Since returns the traffic after before.
func (t Traffic) Since(before Traffic) Traffic {
	return Traffic{t.Requests - before.Requests, t.Bodies - before.Bodies, t.Conns - before.Conns}
}

// Attach counts the traffic of clients made from cfg. It asks for compression itself,
// since Go's transport would hide the compressed bytes.
func (w *Wire) Attach(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &countedTransport{w, next} })
	dialer := &net.Dialer{}
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &countedConn{c, w}, nil
	}
}

type countedConn struct {
	net.Conn
	w *Wire
}

func (c *countedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.w.conns.Add(int64(n))
	return n, err
}

func (c *countedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.w.conns.Add(int64(n))
	return n, err
}

type countedTransport struct {
	w    *Wire
	next http.RoundTripper
}

func (t *countedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	t.w.requests.Add(1)
	req = req.Clone(req.Context())
	ours := req.Header.Get("Accept-Encoding") == ""
	if ours {
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	q := req.URL.Query()
	body := &countedBody{ReadCloser: resp.Body, w: t.w, watch: q.Get("watch") != ""}
	if body.watch && resp.StatusCode == http.StatusOK && q.Get("sendInitialEvents") == "" {
		t.w.saw(nil, true)
	}
	resp.Body = body
	if ours && resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Body = &unzipped{from: body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}

// WrappedRoundTripper lets client-go find the wrapped transport.
func (t *countedTransport) WrappedRoundTripper() http.RoundTripper { return t.next }

type countedBody struct {
	io.ReadCloser
	w     *Wire
	watch bool
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.w.bodies.Add(int64(n))
	if b.watch {
		b.w.saw(p[:n], false)
	}
	return n, err
}

// unzipped unpacks a body from its first read on.
type unzipped struct {
	from io.ReadCloser
	zip  *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.zip == nil {
		z, err := gzip.NewReader(u.from)
		if err != nil {
			return 0, err
		}
		u.zip = z
	}
	return u.zip.Read(p)
}

func (u *unzipped) Close() error { return u.from.Close() }
