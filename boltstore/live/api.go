package live

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
)

// The owner answers the Kubernetes API below this path, in HTTP/1.1 and HTTP/2.
const apiPath = "/v1/api"

// Headers of a request to the API carry package apifile's options. Those of an answer say
// why there are no objects.
const (
	headerCluster = "Kubewake-Cluster"
	headerSecrets = "Kubewake-Secrets"
	headerFresh   = "Kubewake-Fresh"
	headerWarn    = "Kubewake-Warn-After"
	headerElse    = "Kubewake-Otherwise"
	headerNone    = "Kubewake-None" // see noneHere, noneMoved

	noneHere  = "not kept"
	noneMoved = "moved"
)

// silence is how long the owner may send nothing while it has requests.
const silence = 15 * time.Second

var (
	// ErrNotKept: the file does not have the objects that a request to the API asks for.
	ErrNotKept = errors.New("the file does not have it")
	// ErrNoOwner: no process answers for the file any more.
	ErrNoOwner = errors.New("the file's owner does not answer")
)

// protocols are the protocols that both ends speak. All requests to the API share a
// connection.
func protocols() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return p
}

// api answers the Kubernetes API until closing ends.
func (s *server) api(closing context.Context, w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		http.Error(w, "the server is closed", http.StatusServiceUnavailable)
		return
	}
	defer s.wg.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(closing, cancel)()
	none := func(why string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(headerNone, why)
			w.WriteHeader(http.StatusNotFound)
		})
	}
	if err := s.atPath(r); errors.Is(err, boltstore.ErrMoved) {
		none(noneMoved).ServeHTTP(w, r)
		return
	}
	c := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		w = timely{w, c, s.limits.write}
	} else {
		// A client that does not read holds up no other stream: its watch goes on from
		// the file.
		_ = c.SetWriteDeadline(time.Time{}) // it fails only on a connection that is gone
	}
	o := apifile.Options{Cluster: r.Header.Get(headerCluster), Secrets: r.Header.Get(headerSecrets) == "true"}
	if r.Header.Get(headerElse) == "true" {
		o.Otherwise = none(noneHere)
	}
	for name, d := range map[string]*time.Duration{headerFresh: &o.Fresh, headerWarn: &o.WarnAfter} {
		text := r.Header.Get(name)
		if text == "" {
			continue
		}
		var err error
		if *d, err = time.ParseDuration(text); err != nil {
			http.Error(w, name+": "+err.Error(), http.StatusBadRequest)
			return
		}
	}
	http.StripPrefix(apiPath, apifile.New(s.db, o)).ServeHTTP(w, r.WithContext(ctx))
}

// timely is an answer of the API in HTTP/1.1, which has the connection to itself. A client
// that does not take a piece in time loses the connection. Between pieces a watch may be
// silent for any time.
type timely struct {
	http.ResponseWriter
	c     *http.ResponseController
	limit time.Duration
}

// Write implements io.Writer.
func (t timely) Write(p []byte) (int, error) {
	if err := t.c.SetWriteDeadline(time.Now().Add(t.limit)); err != nil {
		return 0, err
	}
	return t.ResponseWriter.Write(p)
}

// Flush implements http.Flusher.
func (t timely) Flush() {
	_ = t.c.SetWriteDeadline(time.Now().Add(t.limit)) // the next Write has the error
	_ = t.c.Flush()
}

// Unwrap is for http.ResponseController.
func (t timely) Unwrap() http.ResponseWriter { return t.ResponseWriter }

// API sends requests to the API of the file's owner. ErrNoOwner means that the owner has
// ended or does not answer, or that its file is not at the path any more: Dial again, or
// open the file.
type API struct {
	o apifile.Options
	t *http.Transport
}

// API returns the API of the owner, with the options Cluster, Secrets, WarnAfter and Fresh.
func (c *Client) API(o apifile.Options) *API {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return &API{o, &http.Transport{
		Protocols: p, DisableCompression: true, DialContext: c.http.Transport.(*http.Transport).DialContext,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: 64 << 10, // a client that does not read leaves this much here: the least
			// A silent owner is asked by a ping. If it does not answer, it does not count
			// as an owner.
			SendPingTimeout: silence, PingTimeout: silence / 3,
		},
	}}
}

// Do sends a request, which has no body. Its URL is that of a request to an API server,
// with any host. If otherwise is true and the file does not have the objects, the error
// is ErrNotKept; if it is false, the owner's refusal is the answer.
func (a *API) Do(r *http.Request, otherwise bool) (*http.Response, error) {
	ctx := r.Context()
	r = r.Clone(ctx)
	r.URL.Scheme, r.URL.Host, r.Host = "http", "kubewake", ""
	r.URL.Path, r.URL.RawPath, r.URL.Opaque = apiPath+r.URL.Path, "", ""
	r.Body, r.ContentLength = nil, 0
	for name, value := range map[string]string{
		headerCluster: a.o.Cluster, headerSecrets: strconv.FormatBool(a.o.Secrets), headerElse: strconv.FormatBool(otherwise),
		headerFresh: a.o.Fresh.String(), headerWarn: a.o.WarnAfter.String(),
	} {
		r.Header.Set(name, value)
	}
	resp, err := a.t.RoundTrip(r)
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrNoOwner, err)
	}
	switch resp.Header.Get(headerNone) {
	case "":
		return resp, nil
	case noneHere:
		return nil, errors.Join(ErrNotKept, resp.Body.Close())
	}
	return nil, errors.Join(fmt.Errorf("%w: its file is not the one at the path", ErrNoOwner), resp.Body.Close())
}

// Close closes connections that are idle.
func (a *API) Close() { a.t.CloseIdleConnections() }
