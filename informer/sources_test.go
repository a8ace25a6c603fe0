package informer

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"runtime/metrics"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// alone says whether the test has a process of its own, in which the world is stopped during a
// garbage collection: what is allocated meanwhile, also by what other tests have left, does not
// count as held memory. If not, alone runs it in one.
func alone(t *testing.T) bool {
	t.Helper()
	const stopped = "gcstoptheworld=1"
	if os.Getenv("GODEBUG") == stopped {
		return true
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-test.run=^" + t.Name() + "$", "-test.v"}
	for _, name := range []string{"test.short", "test.timeout"} {
		args = append(args, fmt.Sprintf("-%s=%s", name, flag.Lookup(name).Value))
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Env = append(os.Environ(), "GODEBUG="+stopped)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("the test in a process of its own: %v", err)
	}
	return false
}

// TestCostOfManySources: 200 sources in one process and file. They start side by side,
// but do not list all at once; each costs a bounded number of goroutines and little
// memory, also while they start; they share commits; and a wake lists nothing.
func TestCostOfManySources(t *testing.T) {
	if !alone(t) {
		return
	}
	const sources, objects = 200, 20
	bubble(t, func(t *testing.T, w *world) {
		for i := range sources {
			for j := range objects {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i),
					Name: fmt.Sprint("cm", j)}, Data: map[string]string{"": "data"}}
				if err := w.sim.Create(o); err != nil {
					t.Fatal(err)
				}
			}
		}
		var mu sync.Mutex
		most, busy, seen := 0, 0, 0
		var peak used
		w.sim.OnRequest = func(r *http.Request) {
			mu.Lock()
			if seen++; seen%50 == 0 {
				now := usage()
				peak.goroutines, peak.heap = max(peak.goroutines, now.goroutines), max(peak.heap, now.heap)
			}
			mu.Unlock()
			if r.URL.Query().Get("watch") != "" || r.URL.Query().Get("limit") == "1" || r.Method != http.MethodGet {
				return
			}
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond) // on the bubble's clock, which takes no time: a round trip
			mu.Lock()
			busy--
			mu.Unlock()
		}
		life := func() (db *boltstore.DB, infs []*Informer, end func()) {
			// what a source costs besides its objects
			db, err := boltstore.Open(w.path, boltstore.Options{ObjectMemory: -1})
			if err != nil {
				t.Fatal(err)
			}
			client := kubernetes.NewForConfigOrDie(w.config()).CoreV1().RESTClient()
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i := range sources {
				lw := cache.NewListWatchFromClient(client, "configmaps", fmt.Sprint("ns", i), fields.Everything())
				inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{},
					Options{Reflector: reflector.Options{Confirm: reflector.ConfirmBookmark}})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
					t.Fatal(err)
				}
				infs = append(infs, inf)
				wg.Go(func() { inf.RunWithContext(ctx) })
			}
			return db, infs, func() {
				cancel()
				wg.Wait()
				if r, err := db.Check(); err != nil || !r.Sound() {
					t.Errorf("%+v %v", r, err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}
		}
		for n := range 2 {
			w.sim.ResetRequests()
			before, began := usage(), time.Now()
			db, infs, end := life()
			for _, inf := range infs {
				<-inf.HasSyncedChecker().Done()
				if got := len(inf.GetStore().ListKeys()); got != objects+n {
					t.Errorf("%s: %d objects", inf.Store().Source(), got)
				}
			}
			took := time.Since(began)
			after(time.Second)
			now := usage()
			goroutines, heap := (now.goroutines-before.goroutines)/sources, (now.heap-before.heap)/sources
			mu.Lock()
			starting := used{(peak.goroutines - before.goroutines) / sources, (peak.heap - before.heap) / sources}
			peak = used{}
			mu.Unlock()
			body := kubesim.CostOf(w.sim.Requests()).Bytes
			full, probes := 0, 0
			for _, r := range w.sim.Requests() {
				if r.FullRead() {
					full++
				} else if r.Verb == "list" {
					probes++
				}
			}
			t.Logf("life %d: synced after %s, %d goroutines and %d bytes of heap a source with the server's, %+v "+
				"while they started, %d full reads, %d questions, %d bytes, at most %d lists at once",
				n, took, goroutines, heap, starting, full, probes, body, most)
			if goroutines > 18 || heap > 70_000 || starting.goroutines > 18 || starting.heap > 70_000 {
				t.Errorf("%d goroutines, %d bytes a source; while they started %+v", goroutines, heap, starting)
			}
			committed := transactions(t, db)
			for i := range sources {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i),
					Name: fmt.Sprint("change", n)}}
				if err := w.sim.Create(o); err != nil {
					t.Fatal(err)
				}
			}
			// Bookmarks are of versions after the last event of the type only.
			if err := w.sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node",
				n)}}); err != nil {
				t.Fatal(err)
			}
			after(time.Second)
			for _, inf := range infs {
				if got := len(inf.GetStore().ListKeys()); got != objects+n+1 {
					t.Errorf("%s: %d objects", inf.Store().Source(), got)
				}
			}
			// The first at once, the others together.
			if committed = transactions(t, db) - committed; committed > 3 {
				t.Errorf("%d transactions for %d changes", committed, sources)
			}
			if most > 10 {
				t.Errorf("%d lists at once", most)
			}
			// One question each, and one more if the watch uses another connection: under
			// HTTP/2 all use one.
			if n == 0 && (full != sources || body > sources*5000) {
				t.Errorf("the first sync: %d full reads, %d bytes", full, body)
			}
			if n == 1 && (full > 0 || probes > 2*sources || body > sources*850) {
				t.Errorf("the wake: %d full reads, %d questions, %d bytes", full, probes, body)
			}
			end()
			after(time.Second)
		}
	})
}

type used struct{ goroutines, heap int }

// usage is the memory held now: the bytes that a garbage collection has found alive. Unless the
// test runs alone, it counts as alive what was allocated meanwhile.
func usage() used {
	runtime.GC()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return used{runtime.NumGoroutine(), int(live[0].Value.Uint64())}
}
