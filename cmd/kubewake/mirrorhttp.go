package main

import (
	"context"
	"errors"
	"fmt"
	stdmaps "maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/net/netutil"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/metrics"
	"github.com/kubewake/kubewake/reflector"
)

// source is one mirrored type.
type source struct {
	name      string
	inf       *informer.Informer
	handler   cache.ResourceEventHandlerRegistration
	once      sync.Once
	live      chan struct{} // closed once it has been live
	denied    chan struct{} // the server refuses the type that the file has
	confirmed chan struct{} // it is live, perhaps after a list
	unserved  atomic.Bool   // the server serves the type in another version or scope

	logging sync.Mutex
	phase   reflector.Phase // the last one
	quiet   bool            // the log does not have it

	added, modified, deleted atomic.Int64
}

func (s *source) told(what string) {
	switch what {
	case "ADDED":
		s.added.Add(1)
	case "MODIFIED":
		s.modified.Add(1)
	default:
		s.deleted.Add(1)
	}
}

// stats is the state behind /status, /metrics, /healthz and /readyz.
type stats struct {
	known    atomic.Bool // all types are
	requests atomic.Int64
	bytes    atomic.Int64

	mu      sync.Mutex
	file    *boltstore.DB
	sources []*source
}

func (s *stats) wrapper(compress bool) func(http.RoundTripper) http.RoundTripper {
	return func(rt http.RoundTripper) http.RoundTripper {
		return &wire{next: rt, compress: compress, requests: &s.requests, bytes: &s.bytes}
	}
}

// begin starts over with a new file.
func (s *stats) begin(db *boltstore.DB) {
	s.known.Store(false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.file, s.sources = db, nil
}

func (s *stats) db() *boltstore.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.file
}

func (s *stats) add(src *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = append(s.sources, src)
}

func (s *stats) remove(src *source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sources = slices.DeleteFunc(s.sources, func(other *source) bool { return other == src })
}

func (s *stats) all() []*source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]*source(nil), s.sources...)
}

// phases returns the state of each source in one line, by name.
func (s *stats) phases() map[string]string {
	phases := map[string]string{}
	for _, src := range s.all() {
		phases[src.name] = deeds(src.inf.State(), time.Now())
	}
	return phases
}

// deeds returns a source's state, and its actions in this life, in one line.
func deeds(st reflector.State, now time.Time) string {
	text := st.String()
	if age, ok := st.Age(now); ok {
		text += fmt.Sprintf(", confirmed %s ago", duration.HumanDuration(age))
	}
	if st.Uncompared {
		text += ", resumed and not compared"
		if !st.Compared.IsZero() {
			text += " since " + st.Compared.UTC().Format(time.RFC3339)
		}
	}
	text += fmt.Sprintf("; resumes: %d, saved %s", st.Resumes, human(int64(st.BytesSaved)))
	var relists []string
	for _, reason := range slices.Sorted(stdmaps.Keys(st.Relists)) {
		relists = append(relists, fmt.Sprintf("%d %s", st.Relists[reason], reason))
	}
	if len(relists) > 0 {
		text += "; relists: " + strings.Join(relists, ", ")
	}
	if st.LastRelist != "" {
		text += fmt.Sprintf(", the last %s ago: %s", duration.HumanDuration(now.Sub(st.LastRelistAt)), st.LastRelist)
	}
	return text
}

// ready says why the mirror is not ready: a source that the server has not confirmed in
// this life, or whose objects were not all told yet.
func (s *stats) ready(r *http.Request) error {
	if !s.known.Load() {
		return errors.New("the types are not known yet")
	}
	all := s.all()
	informers := make([]cache.SharedIndexInformer, len(all))
	for i, src := range all {
		informers[i] = src.inf
	}
	if err := informer.Ready(s.db(), 0, informers...)(r); err != nil {
		return err
	}
	for _, src := range all {
		if !src.handler.HasSynced() {
			return fmt.Errorf("%s: not all objects were told yet", src.name)
		}
	}
	return nil
}

// serve serves HTTP until ctx ends.
func (s *stats) serve(ctx context.Context, addr string, wg *sync.WaitGroup) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewCollector(s.db()), s)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	answer := func(check func(*http.Request) error) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if err := check(r); err != nil {
				http.Error(w, oneLine(err), http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, allStatus{s.status(), s.db().Aside()}) // the client may have gone
	})
	mux.HandleFunc("/readyz", answer(s.ready))
	mux.HandleFunc("/healthz", answer(informer.Live(s.db())))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot serve (--http): %w", err)
	}
	server := httpServer(forThisHost(mux))
	l = netutil.LimitListener(l, mostConnections)
	wg.Go(func() {
		<-ctx.Done()
		_ = server.Close() // nothing to finish
	})
	wg.Go(func() {
		_ = server.Serve(l) // until it is closed
	})
	return nil
}

// mostConnections bounds the connections of --http.
const mostConnections = 100

// forThisHost refuses requests that come over loopback for a name other than localhost: a page in
// a browser could have its own name lead here, and read the answer.
func forThisHost(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		local, err := netip.ParseAddrPort(fmt.Sprint(at))
		if err == nil && local.Addr().Unmap().IsLoopback() && !isAddress(r.Host) {
			http.Error(w, "ask for localhost or for an address, not for another name", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isAddress says whether a Host header names an address, or localhost. A browser always sends one.
func isAddress(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "" || strings.EqualFold(host, "localhost")
}

// httpServer bounds the time and memory that callers can take.
func httpServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second,
		WriteTimeout: time.Minute,
		IdleTimeout:  2 * time.Minute, MaxHeaderBytes: 64 << 10}
}

// allStatus is the answer of /status.
type allStatus struct {
	Sources  []liveStatus      `json:"sources"`
	SetAside []boltstore.Aside `json:"setAside,omitempty"` // files that could not be used
}

// liveStatus is the state of a source in /status.
type liveStatus struct {
	Name string `json:"name"`
	reflector.State
	AgeSeconds *float64        `json:"ageSeconds"` // null: not known
	File       boltstore.State `json:"file"`
}

func (s *stats) status() []liveStatus {
	all := []liveStatus{}
	for _, src := range s.all() {
		st := liveStatus{Name: src.name, State: src.inf.State(), File: src.inf.Store().State()}
		if age, ok := st.Age(time.Now()); ok {
			st.AgeSeconds = new(age.Seconds())
		}
		all = append(all, st)
	}
	return all
}

// The command's own metrics, beyond the library's.
var (
	descTold = prometheus.NewDesc("kubewake_source_told_total", "Changes printed or counted, by their kind.",
		[]string{"source", "type"}, nil)
	descRequests = prometheus.NewDesc("kubewake_requests_total", "Requests sent to the server.", nil, nil)
	descReceived = prometheus.NewDesc("kubewake_response_bytes_total", "Bytes of response bodies, as sent.", nil, nil)
)

// Describe implements prometheus.Collector.
func (s *stats) Describe(ch chan<- *prometheus.Desc) {
	ch <- descTold
	ch <- descRequests
	ch <- descReceived
}

// Collect implements prometheus.Collector.
func (s *stats) Collect(ch chan<- prometheus.Metric) {
	count := func(d *prometheus.Desc, v int64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, src := range s.all() {
		name := strings.ToValidUTF8(src.name, "?") // other text is refused
		count(descTold, src.added.Load(), name, "added")
		count(descTold, src.modified.Load(), name, "modified")
		count(descTold, src.deleted.Load(), name, "deleted")
	}
	count(descRequests, s.requests.Load())
	count(descReceived, s.bytes.Load())
}
