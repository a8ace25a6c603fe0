package controllerruntime

import (
	"slices"
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubewake/kubewake/boltstore"
)

// fallbacks counts the informers of all managers that go without the file.
var fallbacks = &fallbackCollector{ended: map[fallbackLabels]uint64{}}

func init() { metrics.Registry.MustRegister(fallbacks) }

var fallbackDesc = prometheus.NewDesc("kubewake_fallback_informers_total",
	"Informers that were to keep their objects in the file and do not. A strict one never syncs; others keep them in memory.",
	[]string{"type", "strict"}, nil)

type fallbackLabels struct {
	typ    string
	strict bool
}

type fallbackCollector struct {
	mu    sync.Mutex
	open  []*boltstore.DB
	ended map[fallbackLabels]uint64 // of managers that have ended: a counter does not fall
}

func (c *fallbackCollector) add(db *boltstore.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, db)
}

func (c *fallbackCollector) remove(db *boltstore.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = slices.DeleteFunc(c.open, func(other *boltstore.DB) bool { return other == db })
	count(c.ended, db)
}

func count(n map[fallbackLabels]uint64, db *boltstore.DB) {
	for _, f := range db.Fallbacks() {
		n[fallbackLabels{f.Type, f.Strict}] += f.Count
	}
}

// Describe implements prometheus.Collector.
func (c *fallbackCollector) Describe(ch chan<- *prometheus.Desc) { ch <- fallbackDesc }

// Collect implements prometheus.Collector.
func (c *fallbackCollector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := map[fallbackLabels]uint64{}
	for l, before := range c.ended {
		n[l] += before
	}
	for _, db := range c.open {
		count(n, db)
	}
	for l, v := range n {
		ch <- prometheus.MustNewConstMetric(fallbackDesc, prometheus.CounterValue, float64(v), l.typ, strconv.FormatBool(l.strict))
	}
}
