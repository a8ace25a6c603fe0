package metrics

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/reflector"
)

// world is a server with config maps, and a file.
type world struct {
	t   *testing.T
	sim *kubesim.Server
	db  *boltstore.DB
}

func newWorld(t *testing.T, o boltstore.Options) *world {
	t.Helper()
	w := &world{t: t, sim: kubesim.New(kubesim.Options{})}
	if _, err := w.sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.sim.Close)
	w.db = open(t, filepath.Join(t.TempDir(), "cache.db"), o)
	return w
}

func open(t *testing.T, path string, o boltstore.Options) *boltstore.DB {
	t.Helper()
	db, err := boltstore.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // some tests end with a full file
	return db
}

func configMap(namespace, name string, data ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{"k": strings.Join(data, "")}}
}

func (w *world) create(objs ...*corev1.ConfigMap) {
	w.t.Helper()
	for _, o := range objs {
		if err := w.sim.Create(o); err != nil {
			w.t.Fatal(err)
		}
	}
}

func (w *world) informer(namespace string) *informer.Informer {
	w.t.Helper()
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(w.sim.RESTConfig()))
	lw := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", namespace, fields.Everything())
	inf, err := informer.NewSharedIndexInformer(w.db, lw, &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	return inf
}

// run runs an informer until end is called.
func (w *world) run(inf *informer.Informer) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	end = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(end)
	return end
}

// registry is pedantic: it compares the collected metrics with the descriptions.
func registry(t *testing.T, cs ...prometheus.Collector) *prometheus.Registry {
	t.Helper()
	r := prometheus.NewPedanticRegistry()
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// scrape gathers all series: the value of each, for histograms the count.
func scrape(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("lint: %v %v", problems, err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				if l.GetValue() != "" {
					name += fmt.Sprintf(" %s=%s", l.GetName(), l.GetValue())
				}
			}
			all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

var eventually = waittest.Eventually

func expect(t *testing.T, what string, got map[string]float64, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if is, ok := got["kubewake_"+name]; !ok || is != v {
			t.Errorf("%s: %s is %v (there: %v), want %v", what, name, is, ok, v)
		}
	}
}
