package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync/atomic"
)

// wire counts requests and bytes. If answers may be compressed, it asks for that
// itself, so that it counts the bytes that were sent.
type wire struct {
	next     http.RoundTripper
	compress bool
	requests *atomic.Int64
	bytes    *atomic.Int64
}

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	w.requests.Add(1)
	if w.compress && req.Header.Get("Accept-Encoding") == "" {
		req = req.Clone(req.Context())
		req.Header.Set("Accept-Encoding", "gzip")
	}
	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	resp.Body = &counted{resp.Body, w.bytes}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		resp.Body = &unzipped{body: resp.Body}
		resp.Header.Del("Content-Encoding")
		resp.Header.Del("Content-Length")
		resp.ContentLength, resp.Uncompressed = -1, true
	}
	return resp, nil
}

// WrappedRoundTripper returns the transport beneath, for client-go.
func (w *wire) WrappedRoundTripper() http.RoundTripper { return w.next }

type counted struct {
	io.ReadCloser
	bytes *atomic.Int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.bytes.Add(int64(n))
	return n, err
}

type unzipped struct {
	body io.ReadCloser
	zip  *gzip.Reader
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.zip == nil {
		var err error
		if u.zip, err = gzip.NewReader(u.body); err != nil {
			return 0, err
		}
	}
	return u.zip.Read(p)
}

func (u *unzipped) Close() error { return u.body.Close() }
