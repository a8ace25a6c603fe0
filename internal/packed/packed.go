// Package packed sends requests whose answers may be compressed, and counts the bytes
// that come over the link.
package packed

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
)

// RoundTrip sends a request through next and adds to sent the bytes of its answer as they
// come over the link. net/http would unpack a gzipped answer before its bytes can be
// counted. With pack, RoundTrip itself asks for gzip and unpacks, unless the request
// names an encoding or a range.
func RoundTrip(next http.RoundTripper, req *http.Request, pack bool, sent *atomic.Int64) (*http.Response, error) {
	ours := pack && req.Header.Get("Accept-Encoding") == "" && req.Header.Get("Range") == "" &&
		req.Method == http.MethodGet
	if ours {
		req = req.Clone(req.Context())
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := next.RoundTrip(req)
	if err != nil || resp.Uncompressed {
		return resp, err
	}
	resp.Body = &counted{resp.Body, sent}
	if names := By(resp.Header); ours && len(names) == 1 && (names[0] == "gzip" || names[0] == "x-gzip") {
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
		resp.Body = &unpacking{from: resp.Body}
	}
	return resp, nil
}

// By returns an answer's content encodings in lower case, innermost first. There are none
// if the answer is sent as it is.
func By(h http.Header) (names []string) {
	for _, line := range h.Values("Content-Encoding") {
		for name := range strings.SplitSeq(line, ",") {
			if name = strings.ToLower(strings.TrimSpace(name)); name != "" && name != "identity" {
				names = append(names, name)
			}
		}
	}
	return names
}

// counted counts the bytes that are read.
type counted struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}

// unpacking is a gzipped body.
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
