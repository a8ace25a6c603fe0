package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// LinkOptions configure a link. The zero value allows nobody offline.
type LinkOptions struct {
	// Offline is how long requests that the server has allowed stay allowed while the
	// server cannot be asked.
	Offline time.Duration
	// Clusters returns the UID of the namespace kube-system of the file's cluster,
	// several UIDs if its sources come from several clusters, none if it is not known
	// yet. A server of another cluster gets no requests, and its answers are not
	// believed. nil means that the cluster is never known.
	Clusters func(context.Context) []string
	// Clock is the real one by default. It must not jump: a set clock would lengthen Offline.
	Clock clock.Clock
}

// Link leads to the real server. As an http.Handler it passes requests on.
type Link struct {
	to      *url.URL
	own     wires  // with this process's credentials
	bare    wires  // without any
	as      string // whom this process impersonates, "" for nobody
	proxy   *httputil.ReverseProxy
	reviews *reviews
	cluster identity
	authn   authenticationclient.AuthenticationV1Interface
	authz   authorizationclient.AuthorizationV1Interface
}

// wires lead to the server. Streams both ways need HTTP/1.1.
type wires struct{ any, one http.RoundTripper }

// NewLink returns the link that a config describes. It sends nothing.
func NewLink(cfg *rest.Config, o LinkOptions) (*Link, error) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = 0 // watches and streams last
	l := &Link{as: cfg.Impersonate.UserName, reviews: newReviews(o.Clock, o.Offline),
		cluster: identity{file: o.Clusters, lead: map[string]bool{}}}
	if o.Clusters == nil {
		l.cluster.file = func(context.Context) []string { return nil }
	}
	dialer := &net.Dialer{Timeout: patience, KeepAlive: 30 * time.Second}
	cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		l.cluster.doubts.Add(1)
		conn, err := dialer.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.cluster.leads(conn, false)
		return linked{conn, &l.cluster}, nil
	}
	l.reviews.first, l.reviews.answers = l.sameCluster, l.answers
	var err error
	if l.to, _, err = rest.DefaultServerUrlFor(cfg); err != nil {
		return nil, fmt.Errorf("the server's address: %w", err)
	}
	if l.own, err = wiresOf(cfg); err != nil {
		return nil, err
	}
	if l.bare, err = wiresOf(rest.AnonymousClientConfig(cfg)); err != nil {
		return nil, err
	}
	client := &http.Client{
		Transport: checked{l, l.own.any, true},
		// A review has credentials, which are for this server only.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	if l.authn, err = authenticationclient.NewForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	if l.authz, err = authorizationclient.NewForConfigAndClient(cfg, client); err != nil {
		return nil, err
	}
	l.proxy = &httputil.ReverseProxy{
		Rewrite: l.rewrite, Transport: l, FlushInterval: -1,
		ErrorLog: log.New(io.Discard, "", 0), // callers cannot fill the log
	}
	return l, nil
}

func wiresOf(cfg *rest.Config) (w wires, err error) {
	if w.any, err = rest.TransportFor(cfg); err != nil {
		return w, err
	}
	one := rest.CopyConfig(cfg)
	one.NextProtos = []string{"http/1.1"}
	w.one, err = rest.TransportFor(one)
	return w, err
}

// ServeHTTP passes a request on to the server.
func (l *Link) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Headers that the file has set are not part of the server's answer.
	for name := range w.Header() {
		w.Header().Del(name)
	}
	if until, err := l.reviews.silent(); err != nil {
		l.down(w, err, until)
		return
	}
	began := l.reviews.clock.Now()
	if err := l.sameCluster(r.Context()); err != nil {
		l.failed(w, r, began, err)
		return
	}
	p := *l.proxy
	p.ErrorHandler = func(w http.ResponseWriter, r *http.Request, err error) { l.failed(w, r, began, err) }
	pass(&p, w, r)
}

// rewrite makes the request for the server. It has the caller's own credentials, or none
// yet.
func (l *Link) rewrite(p *httputil.ProxyRequest) {
	p.Out.URL.RawQuery = p.In.URL.RawQuery // the proxy drops what does not parse, but a service may understand it
	p.SetURL(l.to)
	c := callerOf(p.In)
	h := p.Out.Header
	h.Del("Authorization")
	if !upgrades(p.In) { // the link has its own HTTP/2
		for _, name := range []string{"Connection", "Upgrade", "Http2-Settings"} {
			h.Del(name)
		}
	}
	for name := range h {
		// An authenticating proxy's headers would be believed with this process's certificate.
		if strings.HasPrefix(http.CanonicalHeaderKey(name), "X-Remote-") || !c.same && c.token == "" &&
			isImpersonation(name) {
			delete(h, name)
		}
	}
	if !c.same && c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}

// RoundTrip sends a request, for the proxy, with its caller's credentials at the server.
func (l *Link) RoundTrip(r *http.Request) (*http.Response, error) {
	c := callerOf(r)
	wires, own := l.own, c.same || c.token == ""
	if !own {
		wires = l.bare
	}
	var rt http.RoundTripper = checked{l, wires.any, own}
	if r.Header.Get("Upgrade") != "" {
		rt = checked{l, wires.one, own}
	}
	if !c.same && c.token == "" {
		rt = c.impersonating(rt)
	}
	resp, err := rt.RoundTrip(r)
	for tries := 1; tries < 3 && isStray(r, err); tries++ {
		resp, err = rt.RoundTrip(r)
	}
	if err != nil {
		l.cluster.doubts.Add(1)
		return nil, err
	}
	l.reviews.reached()
	return resp, nil
}

// isStray says whether err is the end of another request, and r can be sent again. net/http
// gives a connection of HTTP/1 to the next request before it has told the caller of the last
// one. If that caller leaves at this instant, the connection ends with his error
// (https://go.dev/issue/41600). A WebSocket is a GET that may run a command.
func isStray(r *http.Request, err error) bool {
	return errors.Is(err, context.Canceled) && r.Context().Err() == nil && !upgrades(r) &&
		(r.Method == http.MethodGet || r.Method == http.MethodHead) && (r.Body == nil || r.Body == http.NoBody)
}

// failed answers a request that could not be passed on. began is when it was begun.
func (l *Link) failed(w http.ResponseWriter, r *http.Request, began time.Time, err error) {
	var large *http.MaxBytesError
	var op *net.OpError
	switch {
	case errors.As(err, &large):
		kubeapi.WriteStatus(w, apierrors.NewRequestEntityTooLargeError(large.Error()))
		return
	case errors.Is(r.Context().Err(), context.Canceled):
		panic(http.ErrAbortHandler) // the caller left
	case errors.As(err, &op) && op.Op == "dial", r.ContentLength == 0 && !isGroups(r): // a body may be slow by itself
		l.reviews.waited(began, err)
	}
	until, silent := l.reviews.silent()
	if silent == nil {
		until = l.reviews.clock.Now() // the next request is tried
	}
	l.down(w, err, until)
}

// isGroups says whether a request was given too little time for an answer that the server
// may get from another one: that of a group.
func isGroups(r *http.Request) bool {
	return errors.Is(r.Context().Err(), context.DeadlineExceeded) && strings.HasPrefix(r.URL.Path, "/apis/")
}

// down answers that the server cannot be reached until the given time.
func (l *Link) down(w http.ResponseWriter, err error, until time.Time) {
	left := max(until.Sub(l.reviews.clock.Now()), time.Second)
	st := apierrors.NewServiceUnavailable(fmt.Sprintf("the file cannot answer this, and the server cannot be "+
		"reached: %v", err))
	st.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: int32((left + time.Second - 1) / time.Second)}
	kubeapi.WriteStatusUntil(w, st, l.reviews.clock.Now().Add(left))
}
