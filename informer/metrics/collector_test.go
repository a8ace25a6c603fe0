package metrics

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
)

// TestCollector: the state of a file, a source and its handlers, through two lives.
func TestCollector(t *testing.T) {
	w := newWorld(t, boltstore.Options{FlushInterval: time.Millisecond})
	w.create(configMap("web", "a"), configMap("web", "b"), configMap("web", "c"))
	r := registry(t, NewCollector(w.db))
	if got := scrape(t, r); got["kubewake_file_bytes"] == 0 ||
		got["kubewake_source_objects source=configmaps/v1"] != 0 {
		t.Errorf("a new file: %v", got)
	}
	inf := w.informer("")
	refuse := informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
		if e.Key == "web/b" {
			return errors.New("not now")
		}
		return nil
	})
	if _, err := inf.AddDurableHandler("mail", refuse, informer.DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	plain, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "before the start", scrape(t, r), map[string]float64{
		"source_synced source=configmaps/v1": 0, "source_phase phase=starting source=configmaps/v1": 1,
		"source_objects source=configmaps/v1": 0,
	})
	end := w.run(inf)
	eventually(t, "told", func() bool {
		lags := inf.Lags()
		return plain.HasSynced() && inf.State().Phase == reflector.PhaseLive && lags[0] == informer.Lag{} &&
			lags[1].Pending == 1 && lags[1].Failing == 1 && inf.Store().State().InMemory
	})
	got := scrape(t, r)
	expect(t, "live", got, map[string]float64{
		"source_objects source=configmaps/v1": 3, "source_synced source=configmaps/v1": 1,
		"source_phase phase=live source=configmaps/v1":                     1,
		"source_phase phase=offline source=configmaps/v1":                  0,
		"source_relists_total reason=first sync source=configmaps/v1":      1,
		"source_relists_total reason=version expired source=configmaps/v1": 0,
		"source_resumes_total source=configmaps/v1":                        0,
		"source_in_memory source=configmaps/v1":                            1,
		"source_degraded source=configmaps/v1":                             0,
		"handler_lag_entries source=configmaps/v1":                         0,
		"handler_failing_keys handler=mail source=configmaps/v1":           1,
		"handler_pending_keys handler=mail source=configmaps/v1":           1,
		"source_unstored source=configmaps/v1":                             0, "files_set_aside_total": 0,
		"commit_failing": 0, "commit_failures_total": 0, "file_moved": 0, "set_aside_files reason=damaged": 0,
	})
	for _, name := range []string{"handler_pending_age_seconds handler=mail source=configmaps/v1",
		"handler_failures_total handler=mail source=configmaps/v1", "file_bytes", "file_written_bytes_total",
		"commit_duration_seconds", "source_bytes source=configmaps/v1",
		"source_memory_bytes source=configmaps/v1", "object_memory_bytes", "object_memory_limit_bytes",
		"source_last_relist_timestamp_seconds source=configmaps/v1"} {
		if got["kubewake_"+name] <= 0 {
			t.Errorf("%s is %v", name, got["kubewake_"+name])
		}
	}
	if used, most := got["kubewake_object_memory_bytes"], got["kubewake_object_memory_limit_bytes"]; used >= most {
		t.Errorf("%v of %v bytes of memory are used", used, most)
	}
	if age, ok := got["kubewake_source_age_seconds source=configmaps/v1"]; !ok || age > 60 {
		t.Errorf("an age of %v", age)
	}
	if err := w.sim.Update(configMap("web", "a", "2")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "committed", func() bool { return w.db.Stats().Changes.Count() > 1 })
	if got := scrape(t, r); got["kubewake_commit_changes"] != 2 || got["kubewake_commit_changes_bytes"] != 2 {
		t.Errorf("a list and one change were committed: %v", got)
	}
	end()
	if got := scrape(t, r); len(got) > 20 || got["kubewake_commit_changes"] != 2 {
		t.Errorf("without a source: %v", got)
	}
	inf = w.informer("")
	expect(t, "before the second start", scrape(t, r),
		map[string]float64{"source_synced source=configmaps/v1": 0, "source_objects source=configmaps/v1": 3})
	w.run(inf)
	eventually(t, "live again", func() bool { return inf.State().Phase == reflector.PhaseLive })
	got = scrape(t, r)
	expect(t, "live again", got, map[string]float64{
		"source_resumes_total source=configmaps/v1":                   1,
		"source_relists_total reason=first sync source=configmaps/v1": 0,
		"source_last_relist_timestamp_seconds source=configmaps/v1":   0,
	})
	if got["kubewake_source_saved_bytes_total source=configmaps/v1"] <= 0 {
		t.Error("nothing was saved")
	}
	for _, d := range descs {
		if name := nameOf(d); !slices.ContainsFunc(sometimes, func(s string) bool {
			return s == name
		}) && !hasMetric(got, name) {
			t.Errorf("%s has no value", name)
		}
	}
}

// sometimes are metrics that exist only at times.
var sometimes = []string{"kubewake_source_outdated", "kubewake_source_reindexed_total",
	"kubewake_fallback_informers_total", "kubewake_handler_lag_entries",
	"kubewake_handler_pending_keys", "kubewake_handler_pending_age_seconds", "kubewake_handler_failing_keys",
	"kubewake_handler_failures_total"}

func hasMetric(got map[string]float64, name string) bool {
	for series := range got {
		if first, _, _ := strings.Cut(series, " "); first == name {
			return true
		}
	}
	return false
}

// nameOf is a metric's name.
func nameOf(d *prometheus.Desc) string {
	_, text, _ := strings.Cut(d.String(), `fqName: "`)
	name, _, _ := strings.Cut(text, `"`)
	return name
}

// TestCollectorOfAStandalone: a stock informer over the file is a source like others. It has
// synced if it can list the file's objects.
func TestCollectorOfAStandalone(t *testing.T) {
	w := newWorld(t, boltstore.Options{})
	w.create(configMap("web", "a"))
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(w.sim.RESTConfig()))
	lists := cache.NewListWatchFromClient(client.CoreV1().RESTClient(), "configmaps", "", fields.Everything())
	lw, err := reflector.NewStandalone(w.db, lists, &corev1.ConfigMap{}, reflector.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ready := informer.Ready(w.db, 0)
	if err := ready(nil); err == nil || !strings.Contains(err.Error(), "configmaps/v1 has not synced") {
		t.Errorf("before its first list: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	stock := cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
	var wg sync.WaitGroup
	wg.Go(func() { stock.RunWithContext(ctx) })
	if !cache.WaitForCacheSync(ctx.Done(), stock.HasSynced) {
		t.Fatal("not synced")
	}
	eventually(t, "ready", func() bool { return ready(nil) == nil })
	expect(t, "stock", scrape(t, registry(t, NewCollector(w.db))), map[string]float64{
		"source_objects source=configmaps/v1": 1, "source_synced source=configmaps/v1": 1,
		"source_relists_total reason=first sync source=configmaps/v1": 1,
	})
	cancel()
	wg.Wait()
	if err := lw.Close(); err != nil {
		t.Error(err)
	}
	if got := scrape(t, registry(t, NewCollector(w.db))); hasMetric(got, "kubewake_source_objects") {
		t.Errorf("it has ended: %v", got)
	}

	// Another life without the transform cannot serve what an informer has left.
	claimed, err := w.db.Claim(boltstore.Claim{Source: lw.Store().Source(), Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	claimed.SetTransformVersion("1")
	r, err := claimed.Upstream.BeginRelist(boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Commit("1000", time.Now()); err != nil {
		t.Fatal(err)
	}
	claimed.Release()
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	if lw, err = reflector.NewStandalone(w.db, lists, &corev1.ConfigMap{}, reflector.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := ready(nil); err == nil || !strings.Contains(err.Error(), "configmaps/v1 has not synced") {
		t.Errorf("outdated: %v", err)
	}
	expect(t, "outdated", scrape(t, registry(t, NewCollector(w.db))),
		map[string]float64{"source_synced source=configmaps/v1": 0})
	if err := lw.Close(); err != nil {
		t.Error(err)
	}
}

// TestCollectorWithoutAFile: a collector of a nil DB cannot be registered. A scrape would end
// the process, since Prometheus collects in goroutines of its own.
func TestCollectorWithoutAFile(t *testing.T) {
	if err := prometheus.NewRegistry().Register(NewCollector(nil)); err == nil ||
		!strings.Contains(err.Error(), "boltstore.Open") {
		t.Errorf("registered: %v", err)
	}
}

// TestCollectorOfAClosedFile: a closed file has its counters, and another one at the same
// path can take its place in the registry. So can two files, with a label.
func TestCollectorOfAClosedFile(t *testing.T) {
	w := newWorld(t, boltstore.Options{})
	w.create(configMap("web", "a"))
	inf := w.informer("")
	w.run(inf)
	eventually(t, "synced", inf.HasSynced)
	r := registry(t, NewCollector(w.db))
	before := scrape(t, r)
	if err := w.db.Close(); err == nil {
		t.Error("the informer runs")
	}
	after := scrape(t, r)
	if after["kubewake_commit_duration_seconds"] < before["kubewake_commit_duration_seconds"] ||
		hasMetric(after, "kubewake_file_bytes") || hasMetric(after, "kubewake_source_objects") {
		t.Errorf("closed: %v", after)
	}
	again := open(t, w.db.Path(), boltstore.Options{})
	if err := r.Register(NewCollector(again)); err == nil {
		t.Error("two files were registered under the same names")
	}
	if !r.Unregister(NewCollector(again)) {
		t.Error("the closed file was not unregistered")
	}
	if err := r.Register(NewCollector(again)); err != nil {
		t.Fatal(err)
	}
	if got := scrape(t, r); got["kubewake_file_bytes"] == 0 {
		t.Errorf("opened again: %v", got)
	}
	two := prometheus.NewPedanticRegistry()
	for name, db := range map[string]*boltstore.DB{"one": again,
		"two": open(t, filepath.Join(t.TempDir(), "two.db"), boltstore.Options{})} {
		prometheus.WrapRegistererWith(prometheus.Labels{"file": name}, two).MustRegister(NewCollector(db))
	}
	if got := scrape(t, two); got["kubewake_file_bytes file=one"] == 0 || got["kubewake_file_bytes file=two"] == 0 {
		t.Errorf("two files: %v", got)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	view := open(t, w.db.Path(), boltstore.Options{ReadOnly: true, GiveWay: true, LockTimeout: -1})
	if got := scrape(t, registry(t, NewCollector(view))); got["kubewake_file_bytes"] == 0 {
		t.Errorf("a view: %v", got)
	}
}

// TestCollectorOfAFailingDisk: commits that fail, a file that was moved.
func TestCollectorOfAFailingDisk(t *testing.T) {
	w := newWorld(t, boltstore.Options{MaxSize: 1 << 20})
	inf := w.informer("")
	w.run(inf)
	eventually(t, "synced", inf.HasSynced)
	r := registry(t, NewCollector(w.db))
	for i := range 20 {
		w.create(configMap("web", fmt.Sprint("big", i), fmt.Sprint(i), strings.Repeat("0123456789", 10_000)))
	}
	eventually(t, "full", func() bool { return w.db.Err() != nil })
	got := scrape(t, r)
	expect(t, "full", got, map[string]float64{"commit_failing": 1, "file_moved": 0})
	if got["kubewake_commit_failures_total"] == 0 {
		t.Error("no commit has failed")
	}
	if err := os.Rename(w.db.Path(), w.db.Path()+".away"); err != nil {
		t.Fatal(err)
	}
	expect(t, "moved", scrape(t, r), map[string]float64{"commit_failing": 1, "file_moved": 1})
}

// TestCollectorOfOddNames: texts that are not UTF-8, or that become equal, do not make a
// scrape fail.
func TestCollectorOfOddNames(t *testing.T) {
	w := newWorld(t, boltstore.Options{})
	for _, namespace := range []string{"a\xff", "a\xfe", "a -l x=y", "a"} {
		src := boltstore.Source{Version: "v1", Resource: "configmaps", Namespace: namespace, Form: boltstore.FormTyped}
		if namespace == "a" {
			src.LabelSelector = "x=y"
		}
		inf, err := informer.NewSharedIndexInformer(w.db, &cache.ListWatch{}, &corev1.ConfigMap{},
			informer.Options{Reflector: reflector.Options{Source: &src}})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"h\xff", "h\xfe"} {
			if _, err := inf.AddDurableHandler(name,
				informer.DurableHandlerFunc(func(context.Context, informer.Event) error {
					return nil
				}), informer.DurableOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.db.AddFallback("\xff", true, errors.New("no"))
	w.db.AddFallback("\xfe", true, errors.New("no"))
	w.db.AddFallback("pods", false, errors.New("no"))
	got := scrape(t, registry(t, NewCollector(w.db)))
	expect(t, "odd", got, map[string]float64{
		"source_objects source=configmaps/v1 -n a?": 0, "source_objects source=configmaps/v1 -n a?+": 0,
		"source_objects source=configmaps/v1 -n a -l x=y": 0, "source_objects source=configmaps/v1 -n a -l x=y+": 0,
		"handler_pending_keys handler=h? source=configmaps/v1 -n a?":  0,
		"handler_pending_keys handler=h?+ source=configmaps/v1 -n a?": 0,
		"fallback_informers_total strict=true type=?":                 2,
		"fallback_informers_total strict=false type=pods":             1,
	})
}

// TestConcurrentScrapes: informers start and end during scrapes.
func TestConcurrentScrapes(t *testing.T) {
	w := newWorld(t, boltstore.Options{Durability: boltstore.DurabilityProcess})
	r := registry(t, NewCollector(w.db))
	stop := make(chan struct{})
	var scrapers sync.WaitGroup
	for range 4 {
		scrapers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if _, err := r.Gather(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	t.Run("informers", func(t *testing.T) {
		for i := range 20 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				w := world{t, w.sim, w.db}
				namespace := fmt.Sprint("n", i)
				w.create(configMap(namespace, "a"))
				for range 3 {
					inf := w.informer(namespace)
					end := w.run(inf)
					eventually(t, "synced", inf.HasSynced)
					end()
				}
			})
		}
	})
	close(stop)
	scrapers.Wait()
}

// TestAllReasons: each phase and each reason of a relist has its series.
func TestAllReasons(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "../../reflector/state.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	known := slices.Clone(relists)
	for _, p := range phases {
		known = append(known, string(p))
	}
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		s, ok := node.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(s.Names[0].Name, "Reason") && !strings.HasPrefix(s.Names[0].Name, "Phase") {
			return true
		}
		n++
		if text, err := strconv.Unquote(s.Values[0].(*ast.BasicLit).Value); err != nil ||
			!slices.Contains(known, text) {
			t.Errorf("%s (%q) has no series: %v", s.Names[0].Name, text, err)
		}
		return true
	})
	if n+2 != len(known) { // two reasons are boltstore's
		t.Errorf("%d phases and reasons, and %d series", n+2, len(known))
	}
}
