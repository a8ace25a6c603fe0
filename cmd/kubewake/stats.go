package main

import (
	"context"
	"errors"
	"fmt"
	stdmaps "maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// source is one mirrored type.
type source struct {
	name    string
	inf     *informer.Informer
	handler cache.ResourceEventHandlerRegistration
	once    sync.Once
	live    chan struct{} // closed once it has been live
	denied  chan struct{} // the server refuses what the file has

	added, modified, deleted atomic.Int64
	replayed                 atomic.Int64 // when the handler was told the last object of a replay, unix ns
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
	ready    atomic.Bool // all types are known
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
	s.ready.Store(false)
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

// deeds returns a source's state, and what it has done in this life, in one line.
func deeds(st reflector.State, now time.Time) string {
	text := st.String()
	if age, ok := st.Age(now); ok {
		text += fmt.Sprintf(", confirmed %s ago", humanDuration(age))
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
		text += fmt.Sprintf(", the last %s ago: %s", humanDuration(now.Sub(st.LastRelistAt)), st.LastRelist)
	}
	return text
}

// unready names the sources that the server has not confirmed yet, "" if there are
// none.
func (s *stats) unready() string {
	if !s.ready.Load() {
		return "the types are not known yet"
	}
	var names []string
	for _, src := range s.all() {
		if src.inf.State().Phase != reflector.PhaseLive || !src.handler.HasSynced() {
			names = append(names, src.name+": "+src.inf.State().String())
		}
	}
	return strings.Join(names, "; ")
}

// serve serves HTTP until ctx ends.
func (s *stats) serve(ctx context.Context, addr string, wg *sync.WaitGroup) error {
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	answer := func(bad func() string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if why := bad(); why != "" {
				http.Error(w, why, http.StatusServiceUnavailable)
				return
			}
			fmt.Fprintln(w, "ok")
		}
	}
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = printJSON(w, allStatus{s.status(), s.db().Aside()}) // the client may have gone
	})
	mux.HandleFunc("/readyz", answer(s.unready))
	mux.HandleFunc("/healthz", answer(func() string {
		if err := s.db().Err(); err != nil {
			return oneLine(err)
		}
		return ""
	}))
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot serve (--http): %w", err)
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	wg.Go(func() {
		<-ctx.Done()
		_ = server.Close() // nothing to finish
	})
	wg.Go(func() {
		_ = server.Serve(l) // until it is closed
	})
	return nil
}

// allStatus is the answer of /status.
type allStatus struct {
	Sources  []liveStatus      `json:"sources"`
	SetAside []boltstore.Aside `json:"setAside,omitempty"` // files that could not be used
}

// liveStatus is what /status says of a source.
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

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("kubewake_"+name, help, labels, nil)
}

var (
	descObjects   = desc("source_objects", "Objects in the file.", "source")
	descBytes     = desc("source_bytes", "Bytes of the records in the file.", "source")
	descAge       = desc("source_age_seconds", "Time since the server last confirmed the state.", "source")
	descPhase     = desc("source_phase", "1 for the phase that the source is in.", "source", "phase")
	descVersion   = desc("source_resource_version", "1 for the resourceVersion up to which every change is stored.", "source", "resource_version")
	descResumes   = desc("source_resumes_total", "Lists answered from the file, after which the watch resumed.", "source")
	descRelists   = desc("source_relists_total", "Lists read from the server.", "source", "reason")
	descRelisted  = desc("source_last_relist_timestamp_seconds", "Time of the last relist in this life, and its reason.", "source", "reason")
	descSaved     = desc("source_saved_bytes_total", "Bytes of records that lists answered from the file did not transfer.", "source")
	descFailed    = desc("source_failed_total", "Objects that could not be stored.", "source")
	descDegraded  = desc("source_degraded", "1 while an object is missing from the file or damaged there.", "source")
	descUnstored  = desc("source_unstored", "Objects that could not be transformed, keyed or encoded as the server showed them.", "source")
	descUnindexed = desc("source_unindexed", "Objects in the file without values of an index whose function failed.", "source")
	descTold      = desc("source_told_total", "Calls of the handler.", "source", "type")
	descLag       = desc("source_told_lag", "Journal entries that the handler has not been told.", "source")
	descFile      = desc("file_bytes", "Size of the file.")
	descRequests  = desc("requests_total", "Requests sent to the server.")
	descReceived  = desc("response_bytes_total", "Bytes of response bodies, as sent.")
	descOutdated  = desc("source_outdated", "1 while the objects in the file are not served, and why.", "source", "reason")
	descReindexed = desc("source_reindexed_total", "Times the objects in the file were indexed again in this life.", "source", "index")
	descInMemory  = desc("source_in_memory", "1 while this process reads the objects from memory, 0 while from the file.", "source")
	descMemory    = desc("source_memory_bytes", "About what the objects take in memory.", "source")
	descAside     = desc("files_set_aside", "Files beside this one that could not be used.", "reason")
	descAsides    = desc("files_set_aside_total", "Files set aside in this life.")
	descMoved     = desc("file_moved", "1 while the file is not at its path: it was removed or renamed, or another file is there.")
	descCommitBad = desc("commit_failing", "1 while commits fail and are retried.")
)

// Describe implements prometheus.Collector.
func (s *stats) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(s, ch) }

// Collect implements prometheus.Collector.
func (s *stats) Collect(ch chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, typ prometheus.ValueType, v float64, labels []string) {
		for i := range labels { // other text is refused
			labels[i] = strings.ToValidUTF8(labels[i], "?")
		}
		ch <- prometheus.MustNewConstMetric(d, typ, v, labels...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.GaugeValue, v, labels) }
	count := func(d *prometheus.Desc, v float64, labels ...string) { send(d, prometheus.CounterValue, v, labels) }
	for _, src := range s.all() {
		file, now := src.inf.Store().State(), src.inf.State()
		gauge(descObjects, float64(file.Objects), src.name)
		gauge(descBytes, float64(file.Bytes), src.name)
		gauge(descLag, float64(file.Seq-file.Told), src.name)
		if age, ok := now.Age(time.Now()); ok {
			gauge(descAge, age.Seconds(), src.name)
		}
		gauge(descPhase, 1, src.name, string(now.Phase))
		gauge(descVersion, 1, src.name, file.ResourceVersion)
		count(descResumes, float64(now.Resumes), src.name)
		for reason, n := range now.Relists {
			count(descRelists, float64(n), src.name, reason)
		}
		if now.LastRelist != "" {
			gauge(descRelisted, float64(now.LastRelistAt.UnixMilli())/1000, src.name, now.LastRelist)
		}
		count(descSaved, float64(now.BytesSaved), src.name)
		count(descFailed, float64(now.Failed), src.name)
		degraded := 0.0
		if now.Degraded != "" {
			degraded = 1
		}
		gauge(descDegraded, degraded, src.name)
		gauge(descUnstored, float64(now.Unstored), src.name)
		gauge(descUnindexed, float64(now.Unindexed), src.name)
		if file.Outdated != "" {
			gauge(descOutdated, 1, src.name, file.Outdated)
		}
		inMemory := 0.0
		if file.InMemory {
			inMemory = 1
		}
		gauge(descInMemory, inMemory, src.name)
		gauge(descMemory, float64(file.ObjectMemory), src.name)
		for index, n := range file.Reindexed {
			count(descReindexed, float64(n), src.name, index)
		}
		count(descTold, float64(src.added.Load()), src.name, "added")
		count(descTold, float64(src.modified.Load()), src.name, "modified")
		count(descTold, float64(src.deleted.Load()), src.name, "deleted")
	}
	gauge(descFile, float64(s.db().Size()))
	aside := map[string]int{boltstore.AsideDamaged: 0}
	for _, a := range s.db().Aside() {
		aside[a.Reason]++
	}
	for reason, n := range aside {
		gauge(descAside, float64(n), reason)
	}
	count(descAsides, float64(len(s.db().AsidePaths())))
	count(descRequests, float64(s.requests.Load()))
	count(descReceived, float64(s.bytes.Load()))
	failing := 0.0
	if err := s.db().Err(); err != nil && !errors.Is(err, boltstore.ErrMoved) {
		failing = 1
	}
	moved := 0.0
	if s.db().AtPath() != nil {
		moved = 1
	}
	gauge(descMoved, moved)
	gauge(descCommitBad, failing)
}
