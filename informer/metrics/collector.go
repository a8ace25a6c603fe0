package metrics

import (
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/claimants"
	"github.com/kubewake/kubewake/reflector"
)

// NewCollector returns a collector of the file and of all informers over it, including
// later ones. It reads no objects and waits for no commit. After the file is closed, the
// collector still has the counters. A file that is opened again needs a new collector:
//
//	prometheus.Unregister(metrics.NewCollector(old))
//	prometheus.MustRegister(metrics.NewCollector(db))
//
// Two files at once need a label each:
//
// prometheus.WrapRegistererWith(prometheus.Labels{"file": "pods"},
// prometheus.DefaultRegisterer).MustRegister(metrics.NewCollector(db))
//
// Without a DB the registry refuses the collector.
func NewCollector(db *boltstore.DB) prometheus.Collector { return &collector{db} }

type collector struct{ db *boltstore.DB }

var errNoFile = errors.New("metrics: the collector was given no file, but a nil DB: give it the one that " +
	"boltstore.Open has returned")

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	if c.db == nil {
		ch <- prometheus.NewInvalidDesc(errNoFile)
		return
	}
	for _, d := range descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	if c.db == nil { // of a registry that does not ask for descriptions
		ch <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(errNoFile), errNoFile)
		return
	}
	s := sender(ch)
	st := c.db.Stats()
	s.histogram(fileSeconds, st.Transactions)
	s.histogram(fileChanges, st.Changes)
	s.histogram(fileSizes, st.ChangeBytes)
	s.count(fileWritten, st.Written)
	s.count(fileFailed, st.Failed)
	s.count(fileAsides, uint64(len(c.db.AsidePaths())))
	s.fallbacks(c.db.Fallbacks())
	err := c.db.Err()
	if errors.Is(err, boltstore.ErrClosed) {
		return
	}
	s.open(st, err)
	s.flag(fileMoved, errors.Is(c.db.AtPath(), boltstore.ErrMoved))
	s.gauge(fileBytes, float64(c.db.Size()))
	aside := map[string]int{boltstore.AsideDamaged: 0}
	for _, a := range c.db.Aside() {
		aside[a.Reason]++
	}
	for reason, n := range aside {
		s.gauge(fileAside, float64(n), reason)
	}
	names := labels{}
	for _, u := range claimants.Of(c.db) {
		s.source(names, u.(user))
	}
}

// open sends the metrics that only an open file has.
func (s sender) open(st boltstore.Stats, err error) {
	s.flag(fileFailing, st.Failing > 0 || errors.Is(err, boltstore.ErrDamaged))
	s.gauge(fileWriting, st.Writing.Seconds())
	s.gauge(fileMemory, float64(st.ObjectMemory))
	s.gauge(fileMemoryMost, float64(st.ObjectMemoryLimit))
}

// user is an informer.Informer or a reflector.Standalone.
type user interface {
	Store() *boltstore.Store
	State() reflector.State
}

func (s sender) source(names labels, u user) {
	file, now := u.Store().State(), u.State()
	name := names.of(file.Source.String())
	s.gauge(sourceObjects, float64(file.Objects), name)
	s.gauge(sourceBytes, float64(file.Bytes), name)
	s.gauge(sourceJournal, float64(file.JournalBytes), name)
	if age, ok := now.Age(time.Time{}); ok { // as of the State
		s.gauge(sourceAge, age.Seconds(), name)
	}
	if file.ComparedAge != nil {
		s.gauge(sourceCompared, file.ComparedAge.Seconds(), name)
	}
	s.gauge(sourceDiffered, float64(file.Differed), name)
	for _, phase := range phases {
		s.flag(sourcePhase, phase == now.Phase, name, string(phase))
	}
	s.count(sourceResumes, now.Resumes, name)
	for _, reason := range relists {
		if _, ok := now.Relists[reason]; !ok {
			s.count(sourceRelists, 0, name, reason)
		}
	}
	for reason, n := range now.Relists {
		s.count(sourceRelists, n, name, reason)
	}
	relisted := 0.0
	if !now.LastRelistAt.IsZero() {
		relisted = float64(now.LastRelistAt.UnixMilli()) / 1000
	}
	s.gauge(sourceRelisted, relisted, name)
	s.count(sourceSaved, now.BytesSaved, name)
	s.count(sourceFailed, now.Failed, name)
	s.flag(sourceDegraded, now.Degraded != "", name)
	s.gauge(sourceUnstored, float64(now.Unstored), name)
	s.gauge(sourceUnindexed, float64(now.Unindexed), name)
	if file.Outdated != "" {
		s.gauge(sourceOutdated, 1, name, file.Outdated)
	}
	s.flag(sourceInMemory, file.InMemory, name)
	s.gauge(sourceMemory, float64(file.ObjectMemory), name)
	indices := labels{}
	for _, index := range slices.Sorted(maps.Keys(file.Reindexed)) {
		s.count(sourceReindexed, file.Reindexed[index], name, indices.of(index))
	}
	synced := file.Synced && file.Outdated == "" && u.Store().Err() == nil // a Standalone's informer can list it
	if inf, ok := u.(*informer.Informer); ok {
		synced = inf.HasSynced()
		s.handlers(name, inf.Lags())
	}
	s.flag(sourceSynced, synced, name)
}

func (s sender) handlers(source string, lags []informer.Lag) {
	handlers := labels{}
	for _, l := range lags {
		name := handlers.of(l.Handler)
		if l.Handler == "" {
			s.gauge(handlerLag, float64(l.Entries), source, name)
			continue
		}
		s.gauge(handlerPending, float64(l.Pending), source, name)
		s.gauge(handlerAge, l.Age.Seconds(), source, name)
		s.gauge(handlerFailing, float64(l.Failing), source, name)
		s.count(handlerFailures, l.Failures, source, name)
	}
}

func (s sender) fallbacks(all []boltstore.Fallback) {
	type label struct {
		typ    string
		strict bool
	}
	n := map[label]uint64{}
	for _, f := range all {
		n[label{strings.ToValidUTF8(f.Type, "?"), f.Strict}] += f.Count
	}
	for l, v := range n {
		s.count(fileFallbacks, v, l.typ, strconv.FormatBool(l.strict))
	}
}

// sender sends metrics. The values of their labels are valid.
type sender chan<- prometheus.Metric

func (s sender) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
}

func (s sender) flag(d *prometheus.Desc, v bool, labels ...string) {
	n := 0.0
	if v {
		n = 1
	}
	s.gauge(d, n, labels...)
}

func (s sender) count(d *prometheus.Desc, v uint64, labels ...string) {
	s <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
}

func (s sender) histogram(d *prometheus.Desc, h boltstore.Histogram) {
	buckets, n := map[float64]uint64{}, uint64(0)
	for i, bound := range h.Bounds {
		n += h.Counts[i]
		buckets[bound] = n
	}
	s <- prometheus.MustNewConstHistogram(d, h.Count(), h.Sum, buckets)
}
