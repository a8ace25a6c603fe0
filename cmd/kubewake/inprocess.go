package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// inProcess is a transport to a handler of this process. No byte leaves the process, and
// no port is open.
type inProcess struct {
	ctx     context.Context // requests end with it
	handler http.Handler
}

// RoundTrip implements http.RoundTripper. It returns once the handler has begun its
// answer. The body is read while the handler writes it.
func (t *inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(t.ctx, func() { cancel(endOf(r, context.Cause(t.ctx))) })
	in := r.Clone(ctx)
	if in.Body == nil {
		in.Body = http.NoBody
	}
	in.RequestURI = in.URL.RequestURI()
	out, to := io.Pipe()
	context.AfterFunc(ctx, func() { to.CloseWithError(context.Cause(ctx)) })
	w := &reply{header: http.Header{}, begun: make(chan struct{}), body: bufio.NewWriterSize(to, 64<<10)}
	go func() {
		defer stop()
		err := w.answer(t.handler, in)
		if ctx.Err() != nil {
			err = context.Cause(ctx) // a handler then ends as if its answer were complete
		}
		to.CloseWithError(err)
		_ = in.Body.Close() // as every transport does; it was only read
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return &http.Response{
		Status: http.StatusText(w.code), StatusCode: w.code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &replyBody{out, cancel}, ContentLength: -1, Request: r,
	}, nil
}

// endOf is the error with which a body ends when cause ends the command. A watch ends in
// order: client-go makes an object of an error, and kubectl may still print it.
func endOf(r *http.Request, cause error) error {
	if watches, _ := strconv.ParseBool(r.URL.Query().Get("watch")); watches {
		return io.EOF
	}
	return cause
}

// reply is an answer that is read while it is written.
type reply struct {
	header, sent http.Header // sent is what the header was when the answer began
	code         int
	once         sync.Once
	begun        chan struct{}
	body         *bufio.Writer
}

// answer runs a handler. If the handler gives up in the middle, by a panic, the body
// breaks off.
func (w *reply) answer(h http.Handler, r *http.Request) (err error) {
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler: //nolint:errorlint // a panic's value
			err = io.ErrUnexpectedEOF
		default:
			err = fmt.Errorf("the file's API failed: %v", p)
		}
		w.WriteHeader(http.StatusOK)
	}()
	h.ServeHTTP(w, r)
	w.WriteHeader(http.StatusOK)
	return w.body.Flush()
}

func (w *reply) Header() http.Header { return w.header }

func (w *reply) WriteHeader(code int) {
	w.once.Do(func() {
		w.code, w.sent = code, w.header.Clone()
		close(w.begun)
	})
}

func (w *reply) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush implements http.Flusher, for watches.
func (w *reply) Flush() {
	w.WriteHeader(http.StatusOK)
	_ = w.body.Flush() // the next Write fails, too
}

// replyBody ends the request when the client has read enough.
type replyBody struct {
	*io.PipeReader
	cancel context.CancelCauseFunc
}

func (b *replyBody) Close() error {
	b.cancel(context.Canceled)
	return b.PipeReader.Close()
}

// aged says on errOut how old the answers' data is and what it may lack, once for each type.
// Nothing asks again later: if the file cannot answer now, it cannot answer in a second.
type aged struct {
	next    http.RoundTripper
	errOut  io.Writer
	sources []boltstore.State

	mu   sync.Mutex
	said map[string]bool
}

// RoundTrip implements http.RoundTripper.
func (t *aged) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	resp.Header.Del("Retry-After")
	p := kubeapi.ParsePath(r.URL.Path)
	missing := resp.StatusCode == http.StatusNotFound && resp.Header.Get(apifile.HeaderConfirmed) != ""
	if p.Resource == "" || resp.StatusCode != http.StatusOK && !missing {
		return resp, nil
	}
	what := p.GroupVersion.WithResource(p.Resource).GroupResource().String()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.said[what] {
		t.said[what] = true
		fmt.Fprintf(t.errOut, "%s: confirmed by the server %s\n", what, agoOf(resp.Header))
		for _, st := range t.sources {
			if groupOf(st).String() == what {
				sayLacks(t.errOut, st)
			}
		}
	}
	return resp, nil
}
