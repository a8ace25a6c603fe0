package reflector

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// unpack sends a page's request and counts the bytes of its answer as they
// come. net/http would unpack the answer before they can be counted, so it is
// asked for, and done, here.
func (t *transport) unpack(req *http.Request) (*http.Response, error) {
	p, _ := req.Context().Value(rawKey{}).(*rawPage)
	if p == nil {
		return t.next.RoundTrip(req)
	}
	ours := !t.plain && req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == "" && req.Method == http.MethodGet
	if ours {
		req = req.Clone(req.Context())
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := t.next.RoundTrip(req)
	if err != nil || resp.Uncompressed {
		return resp, err
	}
	resp.Body = &counted{resp.Body, &p.sent}
	if packed := encodings(resp.Header); ours && len(packed) == 1 && (packed[0] == "gzip" || packed[0] == "x-gzip") {
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
		resp.Body = &unpacking{from: resp.Body}
	}
	return resp, nil
}

// encodings names how an answer is packed, in lower case, innermost first. It is
// empty for an answer that is sent as it is.
func encodings(h http.Header) (names []string) {
	for _, line := range h.Values("Content-Encoding") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
				names = append(names, name)
			}
		}
	}
	return names
}

type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

type unpacking struct {
	from io.ReadCloser
	r    *gzip.Reader
	err  error // of its beginning
}

func (u *unpacking) Read(p []byte) (int, error) {
	if u.r == nil && u.err == nil {
		u.r, u.err = gzip.NewReader(u.from)
	}
	if u.err != nil {
		return 0, u.err
	}
	return u.r.Read(p)
}

func (u *unpacking) Close() error { return u.from.Close() }
