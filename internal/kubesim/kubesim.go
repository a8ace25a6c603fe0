// Package kubesim is an API server in one process: the list and watch
// contract of Kubernetes over HTTP, held in memory, with faults that are
// scripted and therefore repeatable.
//
// A client should observe the same as with kube-apiserver 1.36: status codes, reasons and
// messages, resource versions, continue tokens, bookmarks, 410 after a restart. The rest
// of a cluster is left out: admission, defaulting, managedFields, finalizers, graceful
// deletion, authentication. A write to the status subresource replaces the whole object.
//
// Package kubeapi answers the requests. Here are the objects, the writes, the faults and
// the records of requests.
//
// State is one revision counter, as in etcd, and for each object the list of
// its versions:
//
//	(resource, /namespace/name) → [(revision, labels, fields, encoded object | tombstone) ...]
//
// A page of an old list, an exact list and [Server.Rewind] read these lists;
// the newest events of each resource stand in a window that watches replay.
//
// To make a test's server or link fail, take the lowest of these that will do:
//
//	an answer of the server      [Server.FailNext] with [Answer]; copy TestDeniedKeeps
//	the server's own life        [Server.Restart], [Server.Rewind], [Server.Stall], ...
//	a request, or bytes of an    f.road or rest.Config.Wrap in package reflector; copy
//	answer, before the client    TestEachAnswer
//	TCP, on a real API server    the proxy in tests/link
//	all of them at random        TestTurmoil in package informer
package kubesim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// Resource is one type the server stores. A kind that client-go's scheme knows
// is stored as its Go type and served as JSON and protobuf; any other is a
// custom resource, unstructured and JSON only.
type Resource = kubeapi.Resource

// DefaultResources returns the types that a Server serves if Options names none: some
// core types, deployments, and the custom resource widgets.example.com/v1.
func DefaultResources() []Resource {
	core := corev1.SchemeGroupVersion
	return []Resource{
		{GroupVersionKind: core.WithKind("ConfigMap"), Plural: "configmaps", Namespaced: true,
			ShortNames: []string{"cm"}},
		{GroupVersionKind: core.WithKind("Namespace"), Plural: "namespaces", ShortNames: []string{"ns"}},
		{GroupVersionKind: core.WithKind("Node"), Plural: "nodes", ShortNames: []string{"no"}},
		{GroupVersionKind: core.WithKind("Pod"), Plural: "pods", Namespaced: true, ShortNames: []string{"po"}},
		{GroupVersionKind: core.WithKind("Secret"), Plural: "secrets", Namespaced: true},
		{GroupVersionKind: core.WithKind("Service"), Plural: "services", Namespaced: true, ShortNames: []string{"svc"}},
		{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("Deployment"), Plural: "deployments", Namespaced: true,
			ShortNames: []string{"deploy"}},
		{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"},
			Plural: "widgets", Namespaced: true},
	}
}

// Options configure a Server. The zero value is a server with DefaultResources
// on the real clock.
type Options struct {
	// Clock drives watch timeouts, bookmarks, RestartOptions.Down and
	// timestamps. Nil is the real clock.
	Clock clock.WithTicker
	// Resources replaces DefaultResources.
	Resources []Resource
	// WatchCacheSize is how many events of each resource a watch can be
	// resumed over; older versions get 410. 0 means 10,000.
	WatchCacheSize int
	// HistorySize is how many superseded object versions are kept, over all
	// resources, for continue tokens, exact lists and Rewind. 0 means 20,000.
	HistorySize int
	// InitialRV is the revision before the first write. The server itself
	// writes the four system namespaces first, if it serves namespaces.
	InitialRV uint64
	// NoBookmarks: the server sends no bookmarks, as very old servers and some
	// aggregated ones.
	NoBookmarks bool
	// LargestPage caps the objects of a page, whatever limit a list names, as
	// some aggregated servers and proxies do. kube-apiserver does not, nor does
	// a Server by default. A list without a limit, and one of version 0, is not
	// paged at all.
	LargestPage int64
	// HTTP2: clients of RESTConfig send all requests over one connection, as to
	// kube-apiserver. Without it, they use HTTP/1.1.
	HTTP2 bool
	// Logger receives encoding failures. Nil discards them.
	Logger *slog.Logger
}

// Server is the simulated API server. All methods are safe for concurrent use.
// Methods that change objects work whether it listens or not. It is one type because
// objects, watches and faults share its clock of versions and its lock.
type Server struct {
	// OnRequest, if set before the first request, sees each request before it
	// is answered. It may block.
	OnRequest func(*http.Request)

	opts  Options
	clock clock.WithTicker
	log   *slog.Logger
	api   *kubeapi.Handler
	store atomic.Pointer[tables] // Redefine replaces it

	mu        sync.Mutex // guards the fields below, and the tables
	rev       uint64
	compacted uint64 // states before this revision are gone
	listable  uint64 // and lists of states before this one are refused
	history   []superseded
	streams   *generation
	faults    faults
	forms     map[schema.GroupVersion]int // counts Reform
	release   string                      // "" means serverVersion
	closed    bool
	closing   chan struct{} // closed with closed

	serving  sync.WaitGroup // handlers, listeners and timers
	requests requestLog

	netMu sync.Mutex // guards the fields below; never taken while holding mu
	addr  string
	pipes bool // no sockets
	// pipeEnds are the clients' ends under HTTP/2, also of connections that have ended since
	// the last hangUp.
	pipeEnds []*pipeConn
	http     *http.Server
	ln       net.Listener // of http, which knows it only once it serves
	conns    map[net.Conn]struct{}
}

// generation is the set of requests that one fault ends together. done is closed, and
// end then says how.
type generation struct {
	done chan struct{}
	end  streamEnd
}

// New returns a server that does not listen yet.
func New(opts Options) *Server {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Resources == nil {
		opts.Resources = DefaultResources()
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	opts.WatchCacheSize = cmp.Or(opts.WatchCacheSize, 10_000)
	opts.HistorySize = cmp.Or(opts.HistorySize, 20_000)
	s := &Server{
		opts:    opts,
		clock:   opts.Clock,
		log:     opts.Logger,
		streams: &generation{done: make(chan struct{})},
		closing: make(chan struct{}),
		conns:   map[net.Conn]struct{}{},
	}
	var all []*table
	for _, r := range opts.Resources {
		all = append(all, newTable(r, opts.InitialRV))
	}
	s.store.Store(tablesOf(all))
	s.api = s.handler()
	if err := s.found(opts.InitialRV); err != nil {
		panic(err)
	}
	return s
}

// found begins a new cluster, whose revisions begin after rv. The caller holds the
// mutex, unless no other goroutine has the server yet.
func (s *Server) found(rv uint64) error {
	s.truncate(0)
	for _, t := range s.store.Load().all {
		t.floor, t.trimmed = rv, rv
	}
	s.rev, s.compacted, s.listable = rv, rv, rv
	t := s.tableByKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if t == nil {
		return nil
	}
	for _, name := range []string{"default", "kube-node-lease", "kube-public", "kube-system"} {
		ns := &corev1.Namespace{}
		ns.Name = name
		if _, err := s.create(t, ns); err != nil {
			return fmt.Errorf("kubesim: create namespace %s: %w", name, err)
		}
	}
	return nil
}

// Start listens on a free port of 127.0.0.1 and returns the server's URL, which
// stays the same over every fault.
func (s *Server) Start() (url string, err error) {
	if err := s.listen("127.0.0.1:0"); err != nil {
		return "", err
	}
	return s.URL(), nil
}

// URL returns the same as Start, or "" before it.
func (s *Server) URL() string {
	s.netMu.Lock()
	defer s.netMu.Unlock()
	if s.addr == "" {
		return ""
	}
	return "http://" + s.addr
}

// RESTConfig returns a client configuration without client-side rate limits.
func (s *Server) RESTConfig() *rest.Config {
	cfg := &rest.Config{Host: s.URL(), QPS: -1}
	s.netMu.Lock()
	defer s.netMu.Unlock()
	if !s.pipes && !s.opts.HTTP2 {
		return cfg
	}
	t := &http.Transport{}
	if s.pipes {
		t.DialContext = s.dialPipe
	}
	if s.opts.HTTP2 {
		t.Protocols = http2Only()
	}
	cfg.Transport = t
	return cfg
}

// http2Only is HTTP/2 without TLS.
func http2Only() *http.Protocols {
	p := &http.Protocols{}
	p.SetUnencryptedHTTP2(true)
	return p
}

// Close ends all connections and requests and returns when they have ended.
// The objects stay readable in process.
func (s *Server) Close() {
	s.mu.Lock()
	if !s.closed {
		close(s.closing)
	}
	s.closed = true
	s.endStreams(streamEnd{abort: true})
	s.mu.Unlock()
	s.hangUp(true)
	s.serving.Wait()
}

// listen opens addr, which a previous listener of this server may just have
// closed: it retries for a few seconds if the address is not yet free.
func (s *Server) listen(addr string) error {
	s.netMu.Lock()
	defer s.netMu.Unlock()
	if s.http != nil || s.enter() == nil {
		return nil
	}
	defer s.serving.Done()
	var l net.Listener = newPipeListener()
	if !s.pipes {
		err := retryFor(5*time.Second, func() (err error) {
			l, err = net.Listen("tcp", addr)
			return err
		})
		if err != nil {
			return fmt.Errorf("kubesim: %w", err)
		}
	}
	s.addr = l.Addr().String()
	srv := &http.Server{
		Handler:   s,
		ConnState: s.trackConn,
		ErrorLog:  slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelError),
	}
	if s.opts.HTTP2 {
		srv.Protocols = http2Only()
	}
	s.http, s.ln = srv, l
	s.serving.Go(func() { _ = srv.Serve(l) })
	return nil
}

func (s *Server) trackConn(c net.Conn, state http.ConnState) {
	s.netMu.Lock()
	defer s.netMu.Unlock()
	switch state {
	case http.StateNew:
		s.conns[c] = struct{}{}
	case http.StateClosed, http.StateHijacked:
		delete(s.conns, c)
	}
}

// hangUp closes every connection, and with stop the listener too.
func (s *Server) hangUp(stop bool) {
	s.netMu.Lock()
	var conns []net.Conn
	for c := range s.conns {
		conns = append(conns, c)
	}
	srv, ln := s.http, s.ln
	if stop {
		s.http = nil
	}
	s.netMu.Unlock()
	if stop && srv != nil {
		_ = ln.Close()
		_ = srv.Close()
	}
	for _, c := range conns {
		_ = c.Close()
	}
	if s.opts.HTTP2 {
		s.noticed()
	}
}

// enter counts the caller among those Close waits for and returns the
// generation it belongs to, or nil if it is too late.
func (s *Server) enter() *generation {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.serving.Add(1)
	return s.streams
}

func retryFor(limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
