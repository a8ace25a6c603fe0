package controllerruntime

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	kubewake "github.com/kubewake/kubewake/informer/metrics"
)

// gathered has the values of kubewake's series in controller-runtime's registry.
func gathered(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			if strings.HasPrefix(name, "kubewake_") {
				all[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// TestMetrics: the files of two managers at once, beside one of the program's own, are in
// controller-runtime's registry until the managers end. FileOf gives the checks.
func TestMetrics(t *testing.T) {
	sim := shop(t, "a", "b")
	dir := t.TempDir()
	running := func(name string) (manager.Manager, func()) {
		mgr, err := NewManager(sim.RESTConfig(), options(), File{Path: filepath.Join(dir, name)})
		if err != nil {
			t.Fatal(err)
		}
		for check, fn := range map[string]error{
			"readyz":  mgr.AddReadyzCheck("cache", informer.Ready(FileOf(mgr), 0)),
			"healthz": mgr.AddHealthzCheck("cache", informer.Live(FileOf(mgr))),
		} {
			if fn != nil {
				t.Fatal(check, fn)
			}
		}
		ctx, end := started(t, mgr)
		var list corev1.ConfigMapList
		eventually(t, "listed", func() bool {
			return mgr.GetClient().List(ctx, &list, client.InNamespace("default")) == nil
		})
		return mgr, end
	}
	own, err := boltstore.Open(filepath.Join(dir, "own.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.WrapRegistererWith(prometheus.Labels{"file": "own"}, metrics.Registry)
	registry.MustRegister(kubewake.NewCollector(own))
	const fallen = "kubewake_fallback_informers_total strict=false type=*v1.Pod"
	before := gathered(t)[fallen] // of earlier managers of the process
	one, endOne := running("one.db")
	if err := informer.Ready(FileOf(one), 0)(nil); err != nil {
		t.Error(err)
	}
	FileOf(one).AddFallback("*v1.Pod", false, context.Canceled)
	_, endTwo := running("two.db")
	got := gathered(t)
	second := " file=" + filepath.Join(dir, "two.db")
	if got["kubewake_source_objects source=configmaps/v1"] != 2 ||
		got["kubewake_source_objects"+second+" source=configmaps/v1"] != 2 ||
		got["kubewake_file_bytes"+second] == 0 || got[fallen] != before+1 {
		t.Errorf("two managers: %v", got)
	}
	if got["kubewake_file_bytes file=own"] == 0 {
		t.Errorf("a file of the program's: %v", got)
	}
	twice := prometheus.NewRegistry()
	twice.MustRegister(files, kubewake.NewCollector(FileOf(one)))
	if _, err := twice.Gather(); err == nil {
		t.Error("a file can be in a registry twice, which NewManager's comment denies")
	}
	endOne()
	endTwo()
	if err := own.Close(); err != nil || !registry.Unregister(kubewake.NewCollector(own)) {
		t.Error(err)
	}
	got = gathered(t)
	maps.DeleteFunc(got, func(name string, _ float64) bool { // of other tests' managers
		return name != fallen && strings.HasPrefix(name, "kubewake_fallback_informers_total ")
	})
	if len(got) != 1 || got[fallen] != before+1 {
		t.Errorf("no managers: %v", got)
	}
	if db := FileOf(nil); db != (*boltstore.DB)(nil) {
		t.Error("a file of no manager")
	}
}
