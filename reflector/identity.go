package reflector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// ErrUnidentified means that a source's identity could not be learned. It is
// never guessed.
var ErrUnidentified = errors.New("reflector: the source's identity cannot be learned: build the client from a rest.Config given to reflector.WrapConfig, with list and watch functions that pass their context on, or state the source in the options")

// probe is carried by the context of a request that must not leave the
// process; the transport notes it there.
type probe struct {
	mu  sync.Mutex
	url *url.URL
	// cluster asks for the UID of kube-system in place of the request.
	cluster bool
	told    clusterUID
	// form asks for the sign of the served form.
	form, late       bool
	sign, definition string
	err              error // why it could not be asked
}

type probeKey struct{}

var errProbed = errors.New("reflector: request intercepted to learn its URL")

// WrapConfig lets clients built on cfg tell the identity of their lists, and
// share one connection where they begin at once. It changes cfg; give it the
// config before a client is made of it.
func WrapConfig(cfg *rest.Config) *rest.Config {
	asked := &asked{turn: make(chan struct{}, 1), uids: map[string]clusterUID{}}
	formed := newFormed()
	gate := newGate()
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return &transport{next: rt, asked: asked, formed: formed, gate: gate, plain: cfg.DisableCompression}
	})
	return cfg
}

type transport struct {
	next   http.RoundTripper
	asked  *asked
	formed *formed
	gate   *gate
	plain  bool // answers are not to be compressed
}

// asked is what the servers of one config said of themselves. Sources that
// start together share an answer: it serves whoever waited while it was got.
type asked struct {
	begun atomic.Uint64 // counts the questions
	turn  chan struct{} // to ask, and to touch uids
	uids  map[string]clusterUID
}

type clusterUID struct {
	uid  string // "": the server does not tell it
	none bool   // kube-system is not there
	ca   string // as in link
	n    uint64 // number of the question
}

func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	p, _ := req.Context().Value(probeKey{}).(*probe)
	if p == nil {
		page := pageOf(req)
		if page != nil && page.metadata != nil {
			return t.metadataFirst(req, page)
		}
		resp, err := t.send(req)
		if err == nil && page != nil {
			page.filter(resp)
		}
		return resp, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.url = req.URL
	if p.cluster {
		p.told, p.err = t.clusterUID(req)
	}
	if p.form {
		p.sign, p.definition, p.err = t.servedForm(req, p.late)
	}
	return nil, errProbed
}

func (t *transport) send(req *http.Request) (*http.Response, error) {
	resp, err := t.gate.roundTrip(req, func(req *http.Request) (*http.Response, error) { return watchPulse(t.measure, req) })
	if err == nil {
		noteAnswer(req, resp)
	}
	return resp, err
}

// measure sends a request, and counts what comes in answer to a page's.
func (t *transport) measure(req *http.Request) (*http.Response, error) {
	p, _ := req.Context().Value(rawKey{}).(*rawPage)
	if p == nil {
		return t.next.RoundTrip(req)
	}
	return wire.RoundTrip(t.next, req, !t.plain, &p.sent)
}

// WrappedRoundTripper lets client-go find the transport beneath.
func (t *transport) WrappedRoundTripper() http.RoundTripper { return t.next }

// clusterUID asks for the UID of the kube-system namespace, with the
// credentials of req.
func (t *transport) clusterUID(req *http.Request) (k clusterUID, err error) {
	server, _, err := splitPath(req.URL.Path)
	if err != nil {
		return k, err
	}
	before, host := t.asked.begun.Load(), req.URL.Host+server
	select {
	case t.asked.turn <- struct{}{}:
		defer func() { <-t.asked.turn }()
	case <-req.Context().Done():
		return k, req.Context().Err()
	}
	if k, ok := t.asked.uids[host]; ok && k.n > before {
		return k, nil // it was asked for while we waited
	}
	n := t.asked.begun.Add(1)
	if k, err = t.askClusterUID(req, server); err == nil {
		k.n = n
		t.asked.uids[host] = k
	}
	return k, err
}

func (t *transport) askClusterUID(req *http.Request, server string) (k clusterUID, err error) {
	ctx, cancel := context.WithTimeout(context.WithValue(req.Context(), probeKey{}, nil), askPatience)
	defer cancel()
	get := req.Clone(ctx)
	get.URL.Path, get.URL.RawPath, get.URL.RawQuery = server+"/api/v1/namespaces/kube-system", "", ""
	get.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	resp, err := t.gate.roundTrip(get, t.next.RoundTrip)
	if err != nil {
		return k, err
	}
	defer resp.Body.Close()
	k.ca = caOf(resp)
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	switch {
	case err != nil:
		return k, err
	case resp.StatusCode == http.StatusNotFound:
		k.none = true
		return k, nil
	case resp.StatusCode >= 300 && resp.StatusCode < 500 && resp.StatusCode != http.StatusRequestTimeout && resp.StatusCode != http.StatusTooManyRequests:
		return k, nil // it does not tell
	case resp.StatusCode != http.StatusOK:
		return k, fmt.Errorf("reflector: ask for the cluster's identity: %s", resp.Status)
	}
	var ns metav1.PartialObjectMetadata
	if err := json.Unmarshal(body, &ns); err != nil {
		return k, fmt.Errorf("reflector: ask for the cluster's identity: %w", err)
	}
	k.uid = string(ns.UID)
	return k, nil
}

// Identify learns which list/watch lw is, and the address of its server,
// without a request. It fails with ErrUnidentified where that is not possible.
func Identify(ctx context.Context, lw cache.ListerWatcher, example runtime.Object) (boltstore.Source, string, error) {
	p := &probe{}
	if err := intercept(ctx, lw, p); err != nil {
		return boltstore.Source{}, "", err
	}
	src, err := sourceOf(p.url)
	if err != nil {
		return boltstore.Source{}, "", err
	}
	src.Form = FormOf(example)
	server, _, _ := splitPath(p.url.Path)
	return src, p.url.Scheme + "://" + p.url.Host + server, nil
}

// FormOf is the form that objects like example have.
func FormOf(example runtime.Object) boltstore.Form {
	switch example.(type) {
	case *unstructured.Unstructured:
		return boltstore.FormUnstructured
	case *metav1.PartialObjectMetadata:
		return boltstore.FormMetadata
	}
	return boltstore.FormTyped
}

// intercept starts a watch that the transport does not let out.
func intercept(ctx context.Context, lw cache.ListerWatcher, p *probe) error {
	// Exec and auth-provider plugins wrap outside our transport and may run.
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, probeKey{}, p), 15*time.Second)
	defer cancel()
	one := int64(1)
	w, err := giveUp(ctx, func() (watch.Interface, error) {
		return cache.ToListerWatcherWithContext(lw).WatchWithContext(ctx, metav1.ListOptions{ResourceVersion: "0", TimeoutSeconds: &one})
	}, stopWatch)
	if err == nil {
		stopWatch(w)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.url == nil {
		if err != nil {
			return fmt.Errorf("%w (%v)", ErrUnidentified, err)
		}
		return ErrUnidentified
	}
	return nil
}

// sourceOf reads a source from the URL of its list.
func sourceOf(u *url.URL) (boltstore.Source, error) {
	prefix, rest, err := splitPath(u.Path)
	if err != nil {
		return boltstore.Source{}, err
	}
	q := u.Query()
	src := boltstore.Source{
		Cluster: strings.Trim(prefix, "/"), LabelSelector: q.Get("labelSelector"),
		FieldSelector: q.Get("fieldSelector"), ShardSelector: q.Get("shardSelector"),
	}
	if rest[0] == "apis" && len(rest) > 1 {
		src.Group, rest = rest[1], rest[1:]
	}
	bad := fmt.Errorf("%w (%s is not the path of a list)", ErrUnidentified, u.Path)
	if len(rest) < 3 {
		return boltstore.Source{}, bad
	}
	src.Version, rest = rest[1], rest[2:]
	if rest[0] == "namespaces" && len(rest) == 3 {
		src.Namespace, rest = rest[1], rest[2:]
	}
	if len(rest) != 1 {
		return boltstore.Source{}, bad
	}
	src.Resource = rest[0]
	return src, nil
}

// splitPath separates what is before /api or /apis, which a proxy in front of
// several clusters may need, from the rest.
func splitPath(path string) (prefix string, rest []string, err error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, p := range parts {
		if p == "api" || p == "apis" {
			if i > 0 {
				prefix = "/" + strings.Join(parts[:i], "/")
			}
			return prefix, parts[i:], nil
		}
	}
	return "", nil, fmt.Errorf("%w (%s has neither /api nor /apis)", ErrUnidentified, path)
}
