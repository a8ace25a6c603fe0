package controllerruntime

import (
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubewake/kubewake/boltstore"
	kubewake "github.com/kubewake/kubewake/informer/metrics"
)

// files has the files of all managers, and shows them to controller-runtime's registry.
var files = &collector{ended: map[fallbackLabels]uint64{}}

func init() { metrics.Registry.MustRegister(files) }

const fallbackName = "kubewake_fallback_informers_total"

var fallbackDesc = prometheus.NewDesc(fallbackName,
	"Informers that were to keep their objects in the file and do not. A strict one never syncs; others keep them "+
		"in memory.",
	[]string{"type", "strict"}, nil)

type fallbackLabels struct {
	typ    string
	strict bool
}

// collector shows package informer/metrics' metrics of each file. While there are
// several, all but the first have a label with their path. Counts of informers without
// the file outlive their manager, since such informers may be why it ended.
type collector struct {
	mu    sync.Mutex
	open  []*boltstore.DB
	ended map[fallbackLabels]uint64
}

func (c *collector) add(db *boltstore.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = append(c.open, db)
}

func (c *collector) remove(db *boltstore.DB) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.open, db); i >= 0 {
		c.open = slices.Delete(c.open, i, i+1)
		count(c.ended, db)
	}
}

func count(n map[fallbackLabels]uint64, db *boltstore.DB) {
	for _, f := range db.Fallbacks() {
		n[fallbackLabels{strings.ToValidUTF8(f.Type, "?"), f.Strict}] += f.Count
	}
}

// Describe implements prometheus.Collector. It describes nothing: a program may have
// files of its own in the same registry.
func (c *collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	c.mu.Lock()
	open, n := slices.Clone(c.open), map[fallbackLabels]uint64{}
	for l, before := range c.ended {
		n[l] += before
	}
	c.mu.Unlock()
	for i, db := range open {
		count(n, db)
		var of prometheus.Collector = kubewake.NewCollector(db)
		if i > 0 {
			of = prometheus.WrapCollectorWith(prometheus.Labels{"file": strings.ToValidUTF8(db.Path(), "?")}, of)
		}
		all := make(chan prometheus.Metric)
		go func() { defer close(all); of.Collect(all) }()
		for m := range all {
			if !strings.Contains(m.Desc().String(), `"`+fallbackName+`"`) { // they are summed up
				ch <- m
			}
		}
	}
	for l, v := range n {
		ch <- prometheus.MustNewConstMetric(fallbackDesc, prometheus.CounterValue, float64(v), l.typ,
			strconv.FormatBool(l.strict))
	}
}
