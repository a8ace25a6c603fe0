package reflector

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	*Reflector
	t         *testing.T
	sim       *kubesim.Server
	db        *boltstore.DB
	store     *boltstore.Claimed
	queue     *fifo.Queue
	clock     *testingclock.FakeClock
	client    *http.Client
	claim     func() // begins another life
	transform cache.TransformFunc
	telling   sync.Mutex
	told      []string
	breaks    atomic.Pointer[func(*http.Request) error] // breaks the way to the server
	tries     atomic.Int64                              // requests that took it, or would have
	paid      kubesim.Cost                              // up to the last call of cost
}

// roundTrip calls the transport.
func (f *fixture) roundTrip(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		f.tries.Add(1)
		if broken := f.breaks.Load(); broken != nil {
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
	f := fixtureOver(t, sim, n, clk, Options{pageSize: 3})
	f.clock = clk
	return f
}

// bubble runs a test in a synctest bubble, where all clocks are the bubble's. The client
// speaks HTTP/2, as kube-apiserver's clients do.
func bubble(t *testing.T, n int, so kubesim.Options, o Options, test func(f *fixture)) {
	t.Helper()
	so.HTTP2 = true
	bubbleOver(t, n, so, o, test)
}

// bubbleOver is bubble over HTTP/1.1, unless so has HTTP2.
func bubbleOver(t *testing.T, n int, so kubesim.Options, o Options, test func(f *fixture)) {
	t.Helper()
	bubbleWith(t, n, so, o, func(*rest.Config) {}, test)
}

// bubbleWith is bubbleOver with a client of its own.
func bubbleWith(t *testing.T, n int, so kubesim.Options, o Options, setup func(*rest.Config), test func(f *fixture)) {
	t.Helper()
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(so)
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		test(fixtureWith(t, sim, n, clock.RealClock{}, o, setup, func(lw cache.ListerWatcher) cache.ListerWatcher {
			return lw
		}))
	})
}

func TestMain(m *testing.M) {
	// One of them sleeps until after the last error, which is ages ahead of a
	// bubble's clock.
	utilruntime.ErrorHandlers = nil
	// client-go's endless messages about broken links would hide a failure.
	if flag.Parse(); !testing.Verbose() {
		klog.SetLogger(logr.Discard())
	}
	os.Exit(m.Run())
}

// warm makes things that exist once in the process, so that no bubble owns them.
func warm(t *testing.T) {
	t.Helper()
	f := newFixture(t, 1)
	f.list()
	if err := f.queue.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "warm",
		ResourceVersion: "100"}}); err != nil {
		t.Fatal(err)
	}
	if err := f.queue.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := f.store.Feed.ReadJournal(1); err != nil {
		t.Fatal(err)
	}
}

func fixtureOver(t *testing.T, sim *kubesim.Server, n int, clk clock.Clock, o Options) *fixture {
	t.Helper()
	return fixtureWith(t, sim, n, clk, o, func(*rest.Config) {}, func(lw cache.ListerWatcher) cache.ListerWatcher {
		return lw
	})
}

// fixtureWith has a client of its own.
func fixtureWith(t *testing.T, sim *kubesim.Server, n int, clk clock.Clock, o Options, setup func(*rest.Config),
	wrap func(cache.ListerWatcher) cache.ListerWatcher) *fixture {
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
	f.client = client.(*rest.RESTClient).Client
	lw := wrap(cache.NewListWatchFromClient(client, "configmaps", "", fields.Everything()))
	src, server, err := Identify(t.Context(), lw, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	fo := boltstore.Options{Keyset: sealtest.Default(), Clock: fileClock(clk)}
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), fo)
	if err != nil {
		t.Fatal(err)
	}
	f.db, o.clock = db, clk
	f.claim = func() {
		if f.store, err = db.Claim(boltstore.Claim{Source: src, Example: &corev1.ConfigMap{}}); err != nil {
			t.Fatal(err)
		}
		f.queue = fifo.New(f.store, f.transform)
		f.Reflector = New(lw, f.queue, f.store, &corev1.ConfigMap{}, server, o)
	}
	f.claim()
	t.Cleanup(func() { f.queue.Close(); f.store.Release(); _ = db.Close() })
	return f
}

// fileClock is the clock of a file whose source has clk: it shows the same time, and the
// committer's timers run as on the real one.
func fileClock(clk clock.Clock) clock.WithTicker {
	if fake, ok := clk.(*testingclock.FakeClock); ok {
		return shownTime{shows: fake}
	}
	return clk.(clock.WithTicker)
}

type shownTime struct {
	clock.RealClock
	shows clock.PassiveClock
}

func (c shownTime) Now() time.Time                  { return c.shows.Now() }
func (c shownTime) Since(t time.Time) time.Duration { return c.shows.Since(t) }

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
	if err := f.sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: name}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) delete(name string) {
	f.t.Helper()
	if err := f.sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: name}}); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) list() {
	f.t.Helper()
	if err := f.begin(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fixture) watch() watch.Interface {
	f.t.Helper()
	return f.watchFor(nil)
}

// watchFor opens a watch of so many seconds, and follows it into a channel.
func (f *fixture) watchFor(seconds *int64) watch.Interface {
	f.t.Helper()
	w, err := f.open(f.t.Context(), seconds)
	if err != nil {
		f.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &followed{out: make(chan watch.Event), done: make(chan struct{}), cancel: cancel}
	go func() {
		defer close(h.done)
		defer close(h.out)
		h.err = w.follow(ctx, func(ev watch.Event) error {
			select {
			case h.out <- ev:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	}()
	f.t.Cleanup(h.Stop)
	return h
}

// followed is a watch whose events a test reads.
type followed struct {
	out    chan watch.Event
	done   chan struct{}
	cancel context.CancelFunc
	err    error // once done is closed
}

func (h *followed) ResultChan() <-chan watch.Event { return h.out }

func (h *followed) Stop() { h.cancel(); <-h.done }

func (f *fixture) next(w watch.Interface) watch.Event {
	f.t.Helper()
	select {
	case ev := <-w.ResultChan():
		return ev
	case <-time.After(time.Minute):
		f.t.Fatal("no event")
	}
	return watch.Event{}
}

func isWatch(r *http.Request) bool { return r.URL.Query().Get("watch") != "" }

// reflect runs the source.
func (f *fixture) reflect() {
	f.t.Helper()
	f.t.Cleanup(f.live())
}

// live runs it until the returned function is called, which cuts off open requests as the
// end of a process does.
func (f *fixture) live() (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	src, queue := f.Reflector, f.queue
	r := cache.NewReflectorWithOptions(src.requests.raw, src.example, queue, cache.ReflectorOptions{})
	done := make(chan struct{})
	go func() { defer close(done); src.Run(ctx, r, func(context.Context, *cache.Reflector, error) {}) }()
	popped := make(chan struct{})
	go func() {
		defer close(popped)
		for {
			if _, err := queue.Pop(f.note); err != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done; queue.Close(); <-popped }
}

// note keeps the changes that a handler would be told.
func (f *fixture) note(obj any, _ bool) error {
	f.telling.Lock()
	defer f.telling.Unlock()
	for _, d := range obj.(cache.Deltas) {
		if e, ok := d.Object.(*boltstore.Entry); ok {
			_, name, _ := cache.SplitMetaNamespaceKey(e.Key)
			f.told = append(f.told, string(d.Type)+" "+name)
		}
	}
	return nil
}

// takeTold returns the changes noted since the last call, sorted.
func (f *fixture) takeTold() string {
	f.telling.Lock()
	defer f.telling.Unlock()
	told := f.told
	f.told = nil
	slices.Sort(told)
	return strings.Join(told, ", ")
}

// after lets that much of the bubble's time pass, with everything that happens in it.
func after(d time.Duration) {
	time.Sleep(d) // on the bubble's clock, which takes no time: the caller's time passes
	synctest.Wait()
}

var others atomic.Int64 // nodes made by other

// other moves the server's version on, by a change to another type.
func (f *fixture) other() {
	f.t.Helper()
	if err := f.sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n",
		others.Add(1))}}); err != nil {
		f.t.Fatal(err)
	}
}

// die ends this life of the process in the middle of its work, and begins another.
func (f *fixture) die(end func()) {
	f.t.Helper()
	end()
	f.store.Release()
	f.claim()
}

// slow fills a server with n objects of which nothing compresses, behind a link
// of 50 kbit/s.
func (f *fixture) slow(n int) {
	for i := range n {
		f.put(fmt.Sprintf("cm%04d", i), 1500, uint64(i))
	}
	f.sim.SetBandwidth(50_000 / 8)
}

// until waits for something, an hour at most, and says whether it came.
func until(come func() bool) bool {
	for began := time.Now(); time.Since(began) < time.Hour; {
		if come() {
			return true
		}
		after(5 * time.Second)
	}
	return come()
}

func isList(r *http.Request) bool { return !isWatch(r) }

// refuse answers requests for config maps with err, as long as it is on.
func (f *fixture) refuse(err *apierrors.StatusError) *atomic.Bool {
	on := &atomic.Bool{}
	f.sim.FailNext(func(r *http.Request) bool { return on.Load() && strings.Contains(r.URL.Path, "configmaps") },
		1<<30, kubesim.Answer(err))
	return on
}
