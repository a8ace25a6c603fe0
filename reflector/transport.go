package reflector

import (
	"context"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// WrapConfig changes cfg, and returns it, so that Identify can learn what its clients list,
// and so that relists can compare objects before they are decoded. Clients that start
// together share one connection. Call it before a client is built. A config that was wrapped
// before stays as it is.
func WrapConfig(cfg *rest.Config) *rest.Config {
	clusters := &clusterAnswers{make(turnToAsk, 1), map[string]clusterAnswer{}}
	forms := &formAnswers{make(turnToAsk, 1), map[string]answer{}}
	gate := newGate()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		if wrapped(rt) {
			return rt // two would sift each other's answers
		}
		return &transport{next: rt, clusters: clusters, forms: forms, gate: gate}
	})
	return cfg
}

// wrapped says whether there is a transport among the ones that rt wraps.
func wrapped(rt http.RoundTripper) bool {
	for {
		switch w := rt.(type) {
		case *transport:
			return true
		case utilnet.RoundTripperWrapper:
			rt = w.WrappedRoundTripper()
		default:
			return false
		}
	}
}

// transport sees the requests of all clients that are built on one config.
type transport struct {
	next     http.RoundTripper
	clusters *clusterAnswers
	forms    *formAnswers
	gate     *gate
}

// RoundTrip implements http.RoundTripper. A request that carries a probe does not
// leave the process.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, _ := req.Context().Value(probeKey{}).(*probe)
	if p == nil {
		var err error
		if req, err = asAsked(req); err != nil {
			return nil, err
		}
	}
	if p == nil {
		beginAnswer(req)
		page := pageOf(req)
		switch {
		case page != nil && page.only != nil:
			return t.metadataOnly(req, page)
		case page != nil && page.metadata != nil:
			return t.metadataFirst(req, page)
		}
		resp, err := t.send(req)
		if err == nil {
			checkSmall(req, resp)
		}
		if err == nil && page != nil {
			page.read(resp)
		}
		return resp, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.note(req.URL)
	if p.cluster {
		p.told, p.err = t.clusterUID(req, p.since)
	}
	if p.form {
		p.sign, p.err = t.servedForm(req, p.since)
	}
	if p.answered {
		return &http.Response{Status: "200 OK", StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1,
			ProtoMinor: 1,
			Header:     http.Header{"Content-Type": {"application/json"}}, Body: http.NoBody, Request: req}, nil
	}
	return nil, errProbed
}

// send sends a request, and notes what its answer shows about link and server.
func (t *transport) send(req *http.Request) (*http.Response, error) {
	resp, err := t.gate.roundTrip(req, func(req *http.Request) (*http.Response, error) {
		return notePulse(t.next.RoundTrip, req)
	})
	if err == nil {
		noteAnswer(req, resp)
	}
	return resp, err
}

// fetch asks for the path, as metadata where the server can give that, with the
// credentials of req. It reads a small body, unless there is a query. resp is nil if the
// server has not answered; its body is closed.
func (t *transport) fetch(ctx context.Context, req *http.Request, path, query string) (
	resp *http.Response, body []byte, err error,
) {
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, probeKey{}, nil), askPatience)
	defer cancel()
	get := req.Clone(ctx)
	get.URL.Path, get.URL.RawPath, get.URL.RawQuery = path, "", query
	get.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	if resp, err = t.gate.roundTrip(get, t.next.RoundTrip); err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	if query == "" {
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	}
	return resp, body, err
}

// failed is the error of a question that the server has failed. It has the status of the
// answer, as the error of any other request has: programs go by that in watch error handlers.
func failed(resp *http.Response) error {
	return apierrors.NewGenericServerResponse(resp.StatusCode, "get", schema.GroupResource{}, "", resp.Status, 0, true)
}

// turnToAsk is taken by the sources of one config that ask about its servers, one at a time.
// Sources that start together share an answer: it serves all that waited for it.
type turnToAsk chan struct{}

// begin waits for the turn to ask, and to touch the answers, until end is called.
func (t turnToAsk) begin(ctx context.Context) (end func(), err error) {
	select {
	case t <- struct{}{}:
		return func() { <-t }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }
