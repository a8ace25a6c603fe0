package factory_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
)

// metricsMade notes for which names metrics are made.
type metricsMade map[string]bool

func (n metricsMade) metric(id cache.InformerNameAndResource) noMetric {
	n[id.Name()+" "+id.GroupVersionResource().Resource] = true
	return noMetric{}
}

func (n metricsMade) NewQueuedItemMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return n.metric(id)
}
func (n metricsMade) NewProcessingLatencyMetric(id cache.InformerNameAndResource) cache.HistogramMetric {
	return n.metric(id)
}
func (n metricsMade) NewStoreResourceVersionMetric(id cache.InformerNameAndResource) cache.GaugeMetric {
	return n.metric(id)
}

type noMetric struct{}

func (noMetric) Set(float64)     {}
func (noMetric) Observe(float64) {}

// TestInformerName: a factory's name publishes client-go's metrics for woken types.
func TestInformerName(t *testing.T) {
	name, err := cache.NewInformerName(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	f := informers.NewSharedInformerFactoryWithOptions(client(simulator(t)), 0, informers.WithInformerName(name))
	made := metricsMade{}
	o := factory.Options{Informer: informer.Options{InformerMetricsProvider: made}}
	if err := factory.Wake(f, temporary(t), o, &corev1.ConfigMap{}); err != nil {
		t.Fatal(err)
	}
	f.Shutdown()
	if len(made) != 1 || !made["TestInformerName configmaps"] {
		t.Errorf("metrics for %v", made)
	}
}
