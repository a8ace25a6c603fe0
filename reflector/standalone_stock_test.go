package reflector

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// notebook is a handler that keeps everything it is told.
type notebook struct {
	mu    sync.Mutex
	lines []string
}

func (n *notebook) add(what string, obj any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		what, obj = what+"?", d.Obj
	}
	o := obj.(*corev1.ConfigMap)
	n.lines = append(n.lines, what+o.Name)
}

func (n *notebook) OnAdd(o any, _ bool) { n.add("+", o) }
func (n *notebook) OnDelete(o any)      { n.add("-", o) }
func (n *notebook) OnUpdate(old, o any) {
	if a, b := old.(*corev1.ConfigMap), o.(*corev1.ConfigMap); a.ResourceVersion == b.ResourceVersion {
		n.add("=", o)
		return
	}
	n.add("~", o)
}

func (n *notebook) take() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.lines = nil }()
	slices.Sort(n.lines)
	return strings.Join(n.lines, " ")
}

// changesOf leaves out updates without a change.
func changesOf(told string) string {
	return strings.Join(slices.DeleteFunc(strings.Fields(told), func(s string) bool { return s[0] == '=' }), " ")
}

// startStock starts a stock informer over a new file, and a simulator that has n config
// maps. Both end with the test.
func startStock(t *testing.T, n int) *stock {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if err := sim.StartPipes(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	s := &stock{t: t, sim: sim, path: filepath.Join(t.TempDir(), "test.db")}
	for i := range n {
		s.write('+', fmt.Sprint("cm", i), "")
	}
	s.start(Options{})
	t.Cleanup(func() { s.end() })
	return s
}

// TestStandaloneAsStock: the changes that a stock informer over the file tells, beside
// one that reads from the server. It tells no more updates without a change.
func TestStandaloneAsStock(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		s := startStock(t, 5)
		sim := s.sim
		over, beside := &notebook{}, &notebook{}
		_, _ = s.inf.AddEventHandler(over) // nothing has stopped the informer
		client := kubernetes.NewForConfigOrDie(sim.RESTConfig()).CoreV1().RESTClient()
		inf := cache.NewSharedIndexInformer(cache.NewListWatchFromClient(client, "configmaps", "",
			fields.Everything()), &corev1.ConfigMap{}, 0, cache.Indexers{})
		_, _ = inf.AddEventHandler(beside)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		// tell waits, and compares what the two are told.
		tell := func(when string, wait time.Duration, want, wantStock string) {
			t.Helper()
			after(wait)
			if got := over.take(); got != want {
				t.Errorf("%s: told %q, want %q", when, got, want)
			}
			if got := changesOf(beside.take()); got != wantStock { // how often it lists is chance
				t.Errorf("%s: client-go told %q, expected %q", when, got, wantStock)
			}
		}
		fault := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		const all = "+cm0 +cm1 +cm2 +cm3 +cm4"
		tell("listed", time.Second, all, all)
		s.write('~', "cm1", "1")
		s.write('-', "cm4", "")
		tell("watched", time.Second, "-cm4 ~cm1", "-cm4 ~cm1")
		sim.DropConnections()
		s.write('~', "cm1", "2")
		tell("resumed", 5*time.Minute, "~cm1", "~cm1")

		fault(sim.RefuseConnections(true))
		tell("refused", 10*time.Minute, "", "")
		s.write('~', "cm1", "3")
		fault(sim.RefuseConnections(false))
		tell("not refused", 5*time.Minute, "~cm1", "~cm1")

		sim.Stall(true) // connections time out
		tell("no answer", 30*time.Minute, "", "")
		s.write('~', "cm1", "4")
		sim.Stall(false)
		tell("answers", 5*time.Minute, "~cm1", "~cm1")

		forbidden := forbid(sim)
		sim.DropConnections()
		tell("forbidden", 30*time.Minute, "", "")
		s.write('~', "cm1", "5")
		forbidden.Store(false)
		tell("allowed", 10*time.Minute, "=cm0 =cm1 =cm2 =cm3 ~cm1", "~cm1")

		// The versions have expired, and a delete was missed.
		fault(sim.Restart(kubesim.RestartOptions{Hold: true}))
		s.write('~', "cm1", "6")
		s.write('-', "cm3", "")
		fault(sim.Resume())
		tell("expired", 10*time.Minute, "-cm3 ~cm1", "-?cm3 ~cm1")
	})
}

// TestStockInformerPurged: if the server refuses the objects for good, and PurgeDenied is
// set, they are told as deleted.
func TestStockInformerPurged(t *testing.T) {
	standaloneBubble(t, 3, func(s *stock) {
		s.end()
		s.start(Options{PurgeDenied: true})
		after(time.Minute)
		s.take()
		forbidden := forbid(s.sim)
		s.sim.DropConnections()
		after(30 * time.Minute)
		if told := s.take(); told != "-cm0 -cm1 -cm2" {
			t.Errorf("purged: told %q", told)
		}
		s.write('+', "new", "")
		forbidden.Store(false)
		after(30 * time.Minute)
		if told := s.take(); told != "+cm0 +cm1 +cm2 +new" {
			t.Errorf("allowed: told %q", told)
		}
	})
}

// forbid makes the server refuse the objects until it is set to false.
func forbid(sim *kubesim.Server) *atomic.Bool {
	forbidden := &atomic.Bool{}
	forbidden.Store(true)
	sim.FailNext(func(r *http.Request) bool {
		return forbidden.Load() && strings.Contains(r.URL.Path, "/configmaps")
	}, math.MaxInt, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`))
	})
	return forbidden
}

// TestStandaloneShortWatches: after a watch that ends within a second, for example on a
// broken connection, a stock informer reads nothing again.
func TestStandaloneShortWatches(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		s := startStock(t, 3)
		sim := s.sim
		over := &notebook{}
		_, _ = s.inf.AddEventHandler(over) // nothing has stopped the informer
		after(time.Minute)
		if got := over.take(); got != "+cm0 +cm1 +cm2" {
			t.Fatalf("told %q", got)
		}
		for range 200 {
			sim.DropConnections()
			after(300 * time.Millisecond)
		}
		s.write('~', "cm1", "1")
		after(time.Minute)
		if got := over.take(); got != "~cm1" {
			t.Errorf("told %q", got)
		}
	})
}
