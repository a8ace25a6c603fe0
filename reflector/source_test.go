package reflector

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/sealtest"
)

type fixture struct {
	*ListerWatcher
	t       *testing.T
	sim     *kubesim.Server
	store   *boltstore.Claimed
	queue   *fifo.Queue
	clock   *testingclock.FakeClock
	claim   func() // begins another life
	telling sync.Mutex
	told    []string
	road    atomic.Pointer[func(*http.Request) error] // breaks the way to the server
	tries   atomic.Int64                              // requests that took it, or would have
	paid    kubesim.Cost                              // up to the last call of cost
}

// roundTrip takes the road.
func (f *fixture) roundTrip(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		f.tries.Add(1)
		if broken := f.road.Load(); broken != nil {
			if err := (*broken)(req); err != nil {
				return nil, err
			}
		}
		return next.RoundTrip(req)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (fn roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return fn(req) }

// newFixture is a source over a simulator that has n config maps.
func newFixture(t *testing.T, n int) *fixture {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	f := fixtureOver(t, sim, n, clk, Options{PageSize: 3})
	f.clock = clk
	return f
}

// bubble runs a test in a synctest bubble, where all time is the bubble's.
func bubble(t *testing.T, n int, so kubesim.Options, o Options, test func(f *fixture)) {
	t.Helper()
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(so)
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		test(fixtureOver(t, sim, n, clock.RealClock{}, o))
	})
}

func TestMain(m *testing.M) {
	// One of them sleeps until after the last error, which is ages ahead of a
	// bubble's clock.
	utilruntime.ErrorHandlers = nil
	// What client-go says of broken links, without end, would hide a failure.
	if flag.Parse(); !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}

// warm makes what the process has but one of, so that no bubble owns it.
func warm(t *testing.T) {
	t.Helper()
	f := newFixture(t, 1)
	f.list()
	if err := f.queue.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "warm", ResourceVersion: "100"}}); err != nil {
		t.Fatal(err)
	}
	if err := f.queue.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.ReadJournal(1); err != nil {
		t.Fatal(err)
	}
}

func fixtureOver(t *testing.T, sim *kubesim.Server, n int, clk clock.Clock, o Options) *fixture {
	t.Helper()
	return fixtureWith(t, sim, n, clk, o, func(*rest.Config) {}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
}

// fixtureWith has a client of its own.
func fixtureWith(t *testing.T, sim *kubesim.Server, n int, clk clock.Clock, o Options, setup func(*rest.Config), wrap func(cache.ListerWatcher) cache.ListerWatcher) *fixture {
	t.Helper()
	t.Cleanup(sim.Close)
	f := &fixture{t: t, sim: sim}
	for i := range n {
		f.create(fmt.Sprint("cm", i))
	}
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	cfg.Wrap(f.roundTrip)
	setup(cfg)
	client := kubernetes.NewForConfigOrDie(WrapConfig(cfg)).CoreV1().RESTClient()
	lw := wrap(cache.NewListWatchFromClient(client, "configmaps", "", fields.Everything()))
	src, server, err := Identify(t.Context(), lw, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	fo := boltstore.Options{Keyset: sealtest.Default()}
	if d, ok := clk.(boltstore.DeviceClock); ok {
		fo.Clock = d
	}
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), fo)
	if err != nil {
		t.Fatal(err)
	}
	o.Server, o.Clock = server, clk
	f.claim = func() {
		if f.store, err = db.Claim(boltstore.Claim{Source: src, Example: &corev1.ConfigMap{}}); err != nil {
			t.Fatal(err)
		}
		f.queue = fifo.New(f.store, fifo.Options{Now: clk.Now})
		f.ListerWatcher = New(lw, f.queue, f.store, &corev1.ConfigMap{}, o)
	}
	f.claim()
	t.Cleanup(func() { f.queue.Close(); f.store.Release(); _ = db.Close() })
	return f
}

// restart ends this life of the process and begins another.
func (f *fixture) restart() {
	f.t.Helper()
	if err := f.queue.Flush(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
	f.queue.Close()
	f.store.Release()
	f.claim()
}

func (f *fixture) create(name string) {
	f.t.Helper()
	if err := f.sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) delete(name string) {
	f.t.Helper()
	if err := f.sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) list() {
	f.t.Helper()
	list, err := f.ListWithContext(f.t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		f.t.Fatal(err)
	}
	rv := list.(*metav1.List).ResourceVersion
	if len(list.(*metav1.List).Items) > 0 || rv != f.queue.Accepted() {
		f.t.Fatalf("answered %+v", list)
	}
	if err := f.queue.Replace(nil, rv); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) watch() watch.Interface {
	f.t.Helper()
	w, err := f.WatchWithContext(f.t.Context(), metav1.ListOptions{})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(w.Stop)
	return w
}

func (f *fixture) next(w watch.Interface) watch.Event {
	f.t.Helper()
	select {
	case ev := <-w.ResultChan():
		return ev
	case <-time.After(10 * time.Second):
		f.t.Fatal("no event")
	}
	return watch.Event{}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// TestFirstListIsPaged: the Reflector gets no objects, the file all of them.
func TestFirstListIsPaged(t *testing.T) {
	f := newFixture(t, 8)
	f.list()
	if n := len(f.store.ListKeys()); n != 8 {
		t.Fatalf("%d objects", n)
	}
	pages := 0
	for _, r := range f.sim.Requests() {
		if r.FullRead() {
			pages++
		}
	}
	if pages != 3 {
		t.Errorf("%d pages", pages)
	}
	f.forget()
	f.list() // again: from the file
	if n := len(f.sim.Requests()); n != 0 {
		t.Errorf("a resume sent %d requests", n)
	}
	if st := f.State(); st.Resumes != 0 {
		t.Errorf("counted before a watch goes on from it: %+v", st)
	}
	f.watch().Stop()
	if st := f.State(); st.Resumes != 1 || st.BytesSaved == 0 || st.Relists[ReasonFirst] != 1 {
		t.Errorf("%+v", st)
	}
}

// TestContinueExpires: everything is read in one page instead.
func TestContinueExpires(t *testing.T) {
	f := newFixture(t, 8)
	f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, 1,
		kubesim.Answer(apierrors.NewResourceExpired("The provided continue parameter is too old")))
	f.list()
	if diff := f.differs(); diff != "" {
		t.Fatal(diff)
	}
	f.costs("in all", kubesim.Cost{Questions: 1, FullReads: 2, Others: 1, Forms: 2, Bytes: 3000})
}

// TestExpiredWatchError: a 410 as an HTTP error is repaired within Watch; the
// stream begins with a bookmark at the new version.
func TestExpiredWatchError(t *testing.T) {
	f := newFixture(t, 4)
	f.list()
	f.cost()
	f.create("more")
	f.sim.FailNext(isWatch, 1, kubesim.Answer(apierrors.NewResourceExpired("too old resource version")))
	w := f.watch()
	ev := f.next(w)
	if ev.Type != watch.Bookmark || ev.Object.(*corev1.ConfigMap).ResourceVersion != f.queue.Accepted() {
		t.Fatalf("%+v", ev)
	}
	if diff := f.differs(); diff != "" {
		t.Fatal(diff)
	}
	f.create("live")
	if ev := f.next(w); ev.Type != watch.Added || ev.Object.(*corev1.ConfigMap).Name != "live" {
		t.Fatalf("%+v", ev)
	}
	f.costs("in all", kubesim.Cost{FullReads: 2, Watches: 2, Forms: 2, Bytes: 1800})
}

// TestExpiredWatchEvent: the ERROR event is not shown; the stream ends after a
// bookmark, and the next Watch has repaired.
func TestExpiredWatchEvent(t *testing.T) {
	bubble(t, 4, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		w := f.watch()
		f.cost()
		f.sim.EndWatches(apierrors.NewResourceExpired("too old resource version"))
		if ev := f.next(w); ev.Type != watch.Bookmark {
			t.Fatalf("%+v", ev)
		}
		if _, open := <-w.ResultChan(); open {
			t.Fatal("the stream goes on")
		}
		f.create("missed")
		began := time.Now()
		f.watch()
		if diff := f.differs(); diff != "" || time.Since(began) > 100*time.Millisecond {
			t.Fatalf("%s, after %s", diff, time.Since(began))
		}
		f.costs("in all", kubesim.Cost{FullReads: 1, Watches: 1, Forms: 2, Bytes: 1300})
		// A second time, soon after, backs off.
		f.link.expired()
		began = time.Now()
		f.watch()
		if n := f.State().Relists[ReasonExpired]; n != 2 || time.Since(began) < 200*time.Millisecond {
			t.Fatalf("%d relists after %s", n, time.Since(began))
		}
		f.costs("in all", kubesim.Cost{FullReads: 1, Watches: 1, Forms: 2, Bytes: 1100})
	})
}

// TestRestoredBetweenListAndWatch: a watch from a version ahead of the server
// would hang without a word, and the list's version was the server's only
// until its connection broke.
func TestRestoredBetweenListAndWatch(t *testing.T) {
	f := newFixture(t, 4)
	then := f.sim.Revision()
	f.create("lost")
	f.list()
	f.cost()
	if err := f.sim.Rewind(then); err != nil {
		t.Fatal(err)
	}
	w := f.watch()
	if ev := f.next(w); ev.Type != watch.Bookmark || ev.Object.(*corev1.ConfigMap).ResourceVersion != fmt.Sprint(then) {
		t.Fatalf("%+v", ev)
	}
	if diff := f.differs(); diff != "" || f.State().Relists[ReasonRestored] != 1 {
		t.Fatalf("%s, %+v", diff, f.State())
	}
	f.costs("in all", kubesim.Cost{Questions: 2, FullReads: 2, Watches: 2, Forms: 2, Bytes: 2000})
}

// TestDenied: data is kept, and unconfirmed.
func TestDenied(t *testing.T) {
	f := newFixture(t, 4)
	f.list()
	f.broken()
	before := f.State().Confirmed
	f.cost()
	f.clock.Step(time.Hour)
	f.sim.FailNext(nil, 1, kubesim.Answer(apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", fmt.Errorf("no"))))
	if _, err := f.WatchWithContext(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatal(err)
	}
	if st := f.State(); st.Phase != PhaseDenied || !st.Confirmed.Equal(before) || len(f.store.ListKeys()) != 4 {
		t.Fatalf("%+v with %d objects", st, len(f.store.ListKeys()))
	}
	f.costs("refused", kubesim.Cost{Questions: 1, Bytes: 220})
	f.watch()
	if diff, st := f.differs(), f.State(); diff != "" || st.Phase != PhaseLive || !st.Confirmed.Equal(f.clock.Now()) {
		t.Fatalf("%s, %+v", diff, st)
	}
	f.costs("allowed", kubesim.Cost{Questions: 1, Watches: 1, Bytes: 450})
}

// TestServerWithoutFieldSelectors still states its version.
func TestServerWithoutFieldSelectors(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	var cfg *rest.Config
	f := fixtureWith(t, sim, 4, clock.RealClock{}, Options{}, func(c *rest.Config) { cfg = rest.CopyConfig(c) }, func(cache.ListerWatcher) cache.ListerWatcher {
		client := kubernetes.NewForConfigOrDie(WrapConfig(cfg)).CoreV1().RESTClient()
		// It does not overwrite the selector, as that of the other tests does.
		return cache.NewFilteredListWatchFromClient(client, "configmaps", "", func(*metav1.ListOptions) {})
	})
	f.list()
	f.broken()
	f.create("more")
	f.cost()
	f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("fieldSelector") != "" }, 1,
		kubesim.Answer(apierrors.NewBadRequest("field label not supported: metadata.name")))
	w := f.watch()
	if ev := f.next(w); ev.Type != watch.Added {
		t.Fatalf("%+v", ev)
	}
	f.costs("asked twice", kubesim.Cost{Questions: 2, Watches: 1, Bytes: 900})
}

// TestRestoreIsRemembered: a relist that fails does not make the server's
// version, once it has overtaken the file's, good enough.
func TestRestoreIsRemembered(t *testing.T) {
	f := newFixture(t, 10)
	f.list()
	if err := f.sim.Rewind(f.sim.Revision() - 3); err != nil {
		t.Fatal(err)
	}
	f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("limit") == "3" }, 1,
		kubesim.Answer(apierrors.NewInternalError(fmt.Errorf("starting"))))
	if _, err := f.WatchWithContext(t.Context(), metav1.ListOptions{}); err == nil {
		t.Fatal("the relist did not fail")
	}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		f.create(name)
	}
	f.clock.Step(time.Hour)
	f.cost()
	f.list()
	f.watch()
	if diff := f.differs(); diff != "" {
		t.Fatal(diff)
	}
	f.costs("in all", kubesim.Cost{FullReads: 4, Watches: 1, Others: 1, Forms: 2, Bytes: 3600})
}
