package informer

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// TestManySources: 200 sources in one process and file. They start side by
// side, but do not list all at once; each costs a bounded number of goroutines
// and little memory; they share commits; and a wake lists nothing.
func TestManySources(t *testing.T) {
	const sources, objects = 200, 20
	bubble(t, func(t *testing.T, w *world) {
		for i := range sources {
			for j := range objects {
				o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("ns", i), Name: fmt.Sprint("cm", j)}, Data: map[string]string{"": "data"}}
				if err := w.sim.Create(o); err != nil {
					t.Fatal(err)
				}
			}
		}
		var mu sync.Mutex
		most, busy := 0, 0
		w.sim.OnRequest = func(r *http.Request) {
			if r.URL.Query().Get("watch") != "" || r.URL.Query().Get("limit") == "1" || r.Method != http.MethodGet {
				return
			}
			mu.Lock()
			busy++
			most = max(most, busy)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond) // the bubble's clock: a round trip
			mu.Lock()
			busy--
			mu.Unlock()
		}
		before := usage()
		life := func() (infs []*Informer, end func()) {
			db, err := boltstore.Open(w.path, boltstore.Options{})
			if err != nil {
				t.Fatal(err)
			}
			client := kubernetes.NewForConfigOrDie(w.config()).CoreV1().RESTClient()
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			for i := range sources {
				lw := cache.NewListWatchFromClient(client, "configmaps", fmt.Sprint("ns", i), fields.Everything())
				inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
					t.Fatal(err)
				}
				infs = append(infs, inf)
				wg.Go(func() { inf.RunWithContext(ctx) })
			}
			return infs, func() {
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
			began := time.Now()
			infs, end := life()
			for _, inf := range infs {
				<-inf.HasSyncedChecker().Done()
				if got := len(inf.GetStore().ListKeys()); got != objects {
					t.Errorf("%s: %d objects", inf.Store().Source(), got)
				}
			}
			took := time.Since(began)
			after(time.Second)
			now := usage()
			goroutines, heap := (now.goroutines-before.goroutines)/sources, (now.heap-before.heap)/sources
			full, probes := 0, 0
			for _, r := range w.sim.Requests() {
				if r.FullRead() {
					full++
				} else if r.Verb == "list" {
					probes++
				}
			}
			t.Logf("life %d: synced after %s, %d goroutines and %d bytes of heap a source with the server's, %d full reads, %d questions, at most %d lists at once",
				n, took, goroutines, heap, full, probes, most)
			if goroutines > 25 || heap > 200_000 {
				t.Errorf("%d goroutines, %d bytes a source", goroutines, heap)
			}
			if most > 10 {
				t.Errorf("%d lists at once", most)
			}
			// A question each, and one more where the watch goes over another
			// connection: under HTTP/2 all go over one.
			if n == 1 && (full > 0 || probes > 2*sources) {
				t.Errorf("the wake: %d full reads, %d questions", full, probes)
			}
			end()
		}
	})
}

type used struct{ goroutines, heap int }

func usage() used {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return used{runtime.NumGoroutine(), int(m.HeapAlloc)}
}
