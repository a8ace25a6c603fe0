package apifile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/waittest"
	"github.com/kubewake/kubewake/reflector"
)

// mirror keeps a simulator's config maps in a file until the test ends.
func mirror(t *testing.T, sim *kubesim.Server, db *boltstore.DB) *informer.Informer {
	t.Helper()
	cs, err := kubernetes.NewForConfig(reflector.WrapConfig(sim.RESTConfig()))
	if err != nil {
		t.Fatal(err)
	}
	lw := cache.NewListWatchFromClient(cs.CoreV1().RESTClient(), "configmaps", "", fields.Everything())
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	run(t, inf)
	return inf
}

// run runs an informer until the test ends, and waits until it has synced.
func run(t *testing.T, inf cache.SharedIndexInformer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { inf.RunWithContext(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	synced, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	if !cache.WaitForCacheSync(synced.Done(), inf.HasSynced) {
		t.Fatal("not synced")
	}
}

// stock is client-go's informer over a handler.
func stock(t *testing.T, url, contentType string) cache.SharedIndexInformer {
	t.Helper()
	cfg := &rest.Config{Host: url, QPS: -1}
	cfg.ContentType, cfg.AcceptContentTypes = contentType, contentType
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (kruntime.Object, error) {
			return cs.CoreV1().ConfigMaps("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return cs.CoreV1().ConfigMaps("").Watch(ctx, o)
		},
	}
	return cache.NewSharedIndexInformer(lw, &corev1.ConfigMap{}, 0, cache.Indexers{})
}

func content(objs []any) string {
	lines := map[string]string{}
	for _, o := range objs {
		cm := o.(*corev1.ConfigMap)
		lines[cm.Namespace+"/"+cm.Name] = cm.ResourceVersion + " " + cm.Data["k"]
	}
	return fmt.Sprint(lines)
}

func contentOf(t *testing.T, sim *kubesim.Server) string {
	t.Helper()
	all, _, err := sim.List(&corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	objs := make([]any, len(all))
	for i, o := range all {
		objs[i] = o
	}
	return content(objs)
}

var eventually = waittest.Eventually

// TestStockInformer: client-go's own informers over the file end equal to the server,
// through events, restarts of the server that the file answers with a list, restores, and
// broken connections of their own.
func TestStockInformer(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	db := filetest.Open(t, boltstore.Options{})
	rnd := rand.New(rand.NewPCG(1, 2))
	write := func() {
		cm := configMap([]string{"default", "other"}[rnd.IntN(2)], fmt.Sprint("c", rnd.IntN(20)), 0)
		cm.ResourceVersion, cm.UID, cm.Data["k"] = "", "", fmt.Sprint(rnd.Int())
		if rnd.IntN(3) == 0 {
			if err := sim.Delete(cm); err != nil && !apierrors.IsNotFound(err) {
				t.Fatal(err)
			}
			return
		}
		err := sim.Create(cm)
		if apierrors.IsAlreadyExists(err) {
			cm.ResourceVersion, cm.UID = "", ""
			err = sim.Update(cm)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		write()
	}
	kept := mirror(t, sim, db)
	srv := httptest.NewServer(New(db, Options{}))
	t.Cleanup(srv.Close)
	informers := map[string]cache.SharedIndexInformer{}
	for _, form := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		informers[form] = stock(t, srv.URL, form)
		run(t, informers[form])
	}
	equal := func(when string) {
		t.Helper()
		want := contentOf(t, sim)
		eventually(t, when+": the file does not get there", func() bool {
			return content(kept.GetStore().List()) == want
		})
		for form, inf := range informers {
			eventually(t, fmt.Sprintf("%s: the informer in %s has\n%s\nnot\n%s", when, form,
				content(inf.GetStore().List()), want),
				func() bool { return content(inf.GetStore().List()) == want })
		}
	}
	equal("at first")
	for round := range 6 {
		when := fmt.Sprint("round ", round)
		early := sim.Revision()
		for range 20 {
			write()
		}
		switch round {
		case 1, 4: // the file lists
			if err := sim.Restart(kubesim.RestartOptions{}); err != nil {
				t.Fatal(err)
			}
		case 2: // the informers' connections break
			srv.CloseClientConnections()
		case 3: // the server is restored
			equal(when + " before the restore")
			if err := sim.Rewind(early); err != nil {
				t.Fatal(err)
			}
		}
		equal(when)
	}
}

// TestEndOfFile: watches end once the file is closed.
func TestEndOfFile(t *testing.T) {
	db, err := boltstore.Open(t.TempDir()+"/test.db", boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: source1("configmaps", "", ""), Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	filetest.Relist(t, s, "10", configMap("a", "x", 1))
	h := New(db, Options{})
	done := make(chan string)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps?watch=true", nil)
	w := &lineWriter{header: http.Header{}, wrote: make(chan string, 10)}
	go func() {
		defer close(done)
		h.ServeHTTP(w, r)
	}()
	if line := <-w.wrote; !strings.Contains(line, `"ADDED"`) {
		t.Errorf("got %s", line)
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("the watch does not end")
	}
	if a := ask(t, h, http.MethodGet, "/api/v1/configmaps"); a.code != http.StatusServiceUnavailable {
		t.Errorf("a list of a closed file: %d %s", a.code, a.body)
	}
}

// lineWriter passes on the lines of an answer.
type lineWriter struct {
	header http.Header
	wrote  chan string
}

func (w *lineWriter) Header() http.Header { return w.header }
func (w *lineWriter) WriteHeader(int)     {}
func (w *lineWriter) Flush()              {}
func (w *lineWriter) Write(b []byte) (int, error) {
	w.wrote <- string(b)
	return len(b), nil
}

// TestIdleWatchers: watchers that do not read hold up nothing and keep no changes in
// memory. Each gets all of them once it reads.
func TestIdleWatchers(t *testing.T) {
	const watchers, changes, size = 50, 300, 20_000
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	db := filetest.Open(t, boltstore.Options{})
	cm := configMap("default", "x", 0)
	cm.ResourceVersion = ""
	cm.Data["fill"] = strings.Repeat("x", size)
	if err := sim.Create(cm); err != nil {
		t.Fatal(err)
	}
	kept := mirror(t, sim, db)
	h := New(db, Options{})
	grows := func() int64 {
		before := heap()
		for i := range changes {
			cm.Data["k"] = fmt.Sprint(i)
			if err := sim.Update(cm); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the file does not get there", func() bool {
			return kept.LastSyncResourceVersion() == cm.ResourceVersion
		})
		return heap() - before
	}
	alone := grows() // the simulator keeps all changes
	first := cm.ResourceVersion
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	idle := make([]*lineWriter, watchers)
	for i := range idle {
		idle[i] = &lineWriter{header: http.Header{}, wrote: make(chan string)}
		running.Go(func() {
			defer func() {
				if r := recover(); r != nil && r != http.ErrAbortHandler {
					panic(r)
				}
			}()
			h.ServeHTTP(&cancelled{idle[i], ctx},
				httptest.NewRequestWithContext(ctx, http.MethodGet,
					"/api/v1/configmaps?watch=true&resourceVersion="+first, nil))
		})
	}
	if grown := grows() - alone; grown > 16<<20 { // all changes for all watchers are 300 MB
		t.Errorf("the heap grew by %d MiB more than without watchers", grown>>20)
	}
	for _, w := range idle[:3] {
		last := ""
		for !strings.Contains(last, `"resourceVersion":"`+cm.ResourceVersion+`"`) {
			select {
			case last = <-w.wrote:
			case <-time.After(time.Minute):
				t.Fatalf("nothing after %.200s", last)
			}
		}
	}
}

// cancelled is a writer whose connection ends with ctx.
type cancelled struct {
	*lineWriter
	ctx context.Context
}

func (w *cancelled) Write(b []byte) (int, error) {
	select {
	case w.wrote <- string(b):
		return len(b), nil
	case <-w.ctx.Done():
		return 0, w.ctx.Err()
	}
}

// heap is how many bytes are in use, apart from what the runtime keeps for later.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
