package informer

import (
	"reflect"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// publisher publishes the metrics that client-go's informers publish under a name: the
// length of the queue, how long it takes to hand out popped items, and the store's
// version.
type publisher struct {
	queued  cache.GaugeMetric
	latency cache.HistogramMetric
	version cache.Indexer // has no objects: client-go's publishes its version
}

// newPublisher returns nil if there is nothing to publish.
func newPublisher(o Options, src boltstore.Source) *publisher {
	if o.InformerName == nil {
		return nil
	}
	id := o.InformerName.WithResource(schema.GroupVersionResource{Group: src.Group, Version: src.Version,
		Resource: src.Resource})
	if !id.Reserved() {
		return nil // another informer of the resource has the name, which client-go logs
	}
	m := &publisher{version: cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{},
		cache.WithStoreMetrics(id, o.InformerMetricsProvider))}
	if p := o.InformerMetricsProvider; p != nil {
		m.queued, m.latency = p.NewQueuedItemMetric(id), p.NewProcessingLatencyMetric(id)
		return m
	}
	// Only client-go's queue knows the process's provider
	// (cache.SetInformerMetricsProvider). The provider's metrics are in two of its
	// fields.
	q := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{KeyFunction: cache.MetaNamespaceKeyFunc,
		AtomicEvents: true, Identifier: id})
	if fields := reflect.ValueOf(q).Elem().FieldByName("metrics"); fields.Kind() == reflect.Pointer && !fields.IsNil() {
		m.queued, _ = field(fields.Elem(), "numberOfQueuedItem").(cache.GaugeMetric)
		m.latency, _ = field(fields.Elem(), "processingLatency").(cache.HistogramMetric)
	}
	return m
}

// field returns the value of a field that is not exported, nil if there is no such field.
func field(of reflect.Value, name string) any {
	f := of.FieldByName(name)
	if !f.IsValid() || !f.CanAddr() {
		return nil
	}
	return reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Interface()
}

func (m *publisher) length(n int) {
	if m.queued != nil {
		m.queued.Set(float64(n))
	}
}

// processed notes that popped items have been handed out.
func (m *publisher) processed(took time.Duration, version string) {
	if m.latency != nil {
		m.latency.Observe(took.Seconds())
	}
	if version != "" {
		m.version.Bookmark(version)
	}
}
