package informer

import (
	"errors"
	"slices"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// metricScenarios are about metrics and logs under a name.
var metricScenarios = []scenario{
	{name: "metrics of a provider", run: func(s *side) {
		m := &tableMetrics{}
		s.o.InformerMetricsProvider = m
		s.published(m)
	}},
	{name: "metrics of the process's provider", run: func(s *side) {
		processMetrics.take() // of other tests
		cache.SetInformerMetricsProvider(processMetrics)
		s.published(processMetrics)
	}},
	{name: "object description", o: Options{ObjectDescription: "the description"}, run: func(s *side) {
		errs := s.watchErrors()
		s.src.fail(errors.New("x"), nil)
		s.run()
		s.note("the handler is called with", errs.take())
	}},
}

// published notes the metrics of two informers with one name.
func (s *side) published(m *tableMetrics) {
	name, err := cache.NewInformerName("table")
	if err != nil {
		s.t.Fatal(err)
	}
	defer name.Release()
	s.closeFile()
	s.o.InformerName = name
	s.begin()
	s.another() // has not the name
	release := make(chan struct{})
	h := s.handler("h")
	h.on = func(string) { <-release }
	s.add(h)
	s.create("a", "b")
	s.run()
	made, last := m.take()
	s.note("synced", made, last)
	s.create("c")
	s.settle()
	s.delete("a")
	s.settle()
	made, last = m.take()
	s.note("changed", made, last)
	close(release)
	s.stop()
}

// processMetrics is set once in the process.
var processMetrics = &tableMetrics{}

// tableMetrics are named by the resource. Of a latency only the presence is noted.
type tableMetrics struct {
	mu   sync.Mutex
	made []string
	last map[string]float64
}

func (m *tableMetrics) metric(what string, id cache.InformerNameAndResource) *tableMetric {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.made = append(m.made, what+" of "+id.Name()+" "+id.GroupVersionResource().Resource)
	return &tableMetric{m, what}
}

func (m *tableMetrics) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return m.metric("queued", id)
}
func (m *tableMetrics) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return m.metric("latency", id)
}
func (m *tableMetrics) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return m.metric("version", id)
}

// take returns the metrics made and the last values since the last time.
func (m *tableMetrics) take() ([]string, map[string]float64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	made, last := m.made, m.last
	slices.Sort(made)
	m.made, m.last = nil, nil
	return made, last
}

type tableMetric struct {
	of   *tableMetrics
	what string
}

func (t *tableMetric) Set(v float64) {
	t.of.mu.Lock()
	defer t.of.mu.Unlock()
	if t.of.last == nil {
		t.of.last = map[string]float64{}
	}
	t.of.last[t.what] = v
}

func (t *tableMetric) Observe(float64) { t.Set(0) }
