package reflector

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// newAudited has five objects and watches that may be quiet.
func newAudited(t *testing.T, o Options, wrap func(cache.ListerWatcher) cache.ListerWatcher) *fixture {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	if wrap == nil {
		wrap = func(lw cache.ListerWatcher) cache.ListerWatcher { return lw }
	}
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	o.quietTimeout = 10 * time.Hour
	f := fixtureWith(t, sim, 5, clk, o, func(*rest.Config) {}, wrap)
	f.clock = clk
	return f
}

// take feeds events to the queue until the server's version has come.
func (f *fixture) take(w watch.Interface) {
	f.t.Helper()
	for want := fmt.Sprint(f.sim.Revision()); f.queue.AcceptedVersion() != want; {
		ev := f.next(w)
		var err error
		switch ev.Type {
		case watch.Added:
			err = f.queue.Add(ev.Object)
		case watch.Modified:
			err = f.queue.Update(ev.Object)
		case watch.Deleted:
			err = f.queue.Delete(ev.Object)
		case watch.Bookmark:
			err = f.queue.Bookmark(versionOf(ev.Object))
		}
		if err != nil {
			f.t.Fatal(err)
		}
	}
}

// endLong opens a watch that has nothing to catch up with, and makes it end in order.
func (f *fixture) endLong() {
	f.t.Helper()
	w, err := f.WatchWithContext(f.t.Context(), metav1.ListOptions{TimeoutSeconds: new(int64(300))})
	if st := f.State(); err != nil || st.Phase != PhaseLive {
		f.t.Fatalf("%v %+v", err, st)
	}
	f.clock.Step(5 * time.Minute)
	f.sim.EndWatches(nil)
	for range w.ResultChan() {
	}
}

// overtake takes the server back to version then, and writes until it is past the version
// of the file.
func (f *fixture) overtake(then uint64, write func(i int)) {
	f.t.Helper()
	before := f.sim.Revision()
	if err := f.sim.Rewind(then); err != nil {
		f.t.Fatal(err)
	}
	for i := 0; f.sim.Revision() <= before; i++ {
		write(i)
	}
}

// TestOvertakenServerIsCounted: a restored server that has overtaken the file is noticed by the
// number of its objects, after the first long watch, for one request.
func TestOvertakenServerIsCounted(t *testing.T) {
	f := newAudited(t, Options{Confirm: ConfirmBookmark}, nil)
	then := f.sim.Revision()
	f.create("lost1")
	f.create("lost2")
	f.list()
	f.overtake(then, func(i int) { f.put("cm1", 10, uint64(i)) })
	w := f.watch()
	f.take(w)
	f.sim.DropConnections()
	for range w.ResultChan() { // it says that the link is broken before the next one begins
	}
	f.doubtLink()
	f.endLong()
	f.cost()
	if n := len(f.store.ListKeys()); n != 7 {
		t.Fatalf("%d objects", n) // it could not be noticed
	}
	f.watch()
	if d := f.differs(); d != "" {
		t.Error(d)
	}
	if st := f.State(); st.Relists[ReasonCounts] != 1 || st.LastRelist != ReasonCounts {
		t.Errorf("%+v", st)
	}
	f.costs("counted and read again", kubesim.Cost{Questions: 3, FullReads: 1, Watches: 1, Forms: 2, Bytes: 2400})
	// Not again before the next outage.
	f.endLong()
	f.watch()
	f.costs("afterwards", kubesim.Cost{Questions: 3, Watches: 3, Bytes: 1300})
}

// TestCountsEqual: one request with one object, and no relist.
func TestCountsEqual(t *testing.T) {
	f := newAudited(t, Options{Confirm: ConfirmBookmark}, nil)
	f.list()
	f.endLong()
	f.create("other") // counted at the file's version, not at the server's
	f.forget()
	f.watch()
	counted := 0
	for _, r := range f.sim.Requests() {
		if r.Query.Get("resourceVersionMatch") != "" {
			counted++
			if r.Items != 1 || r.Status != 200 {
				t.Errorf("%+v", r)
			}
		}
	}
	if st := f.State(); counted != 1 || st.Relists[ReasonCounts] != 0 {
		t.Errorf("counted %d times, %+v", counted, st)
	}
	f.costs("in all", kubesim.Cost{Questions: 2, Watches: 1, Bytes: 1150})
}

// lossy is a list function that leaves objects out.
type lossy struct {
	cache.ListerWatcherWithContext
	leaves *bool
}

func (l lossy) List(o metav1.ListOptions) (runtime.Object, error) {
	return l.ListWithContext(context.Background(), o)
}

func (l lossy) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return l.WatchWithContext(context.Background(), o)
}

func (l lossy) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := l.ListerWatcherWithContext.ListWithContext(ctx, o)
	if cms, ok := list.(*corev1.ConfigMapList); ok && err == nil && o.Limit != 1 && len(cms.Items) > 0 && *l.leaves {
		cms.Items = cms.Items[1:]
	}
	return list, err
}

// TestCountsMeanNothing where a list function leaves objects out: one relist
// shows it, and none follows.
func TestCountsMeanNothing(t *testing.T) {
	f := newAudited(t, Options{}, func(lw cache.ListerWatcher) cache.ListerWatcher {
		return lossy{cache.ToListerWatcherWithContext(lw), new(true)}
	})
	f.list()
	f.cost()
	for range 3 {
		f.endLong()
		f.clock.Step(time.Hour)
		f.watch()
		f.audit.outage()
	}
	if n := f.State().Relists[ReasonCounts]; n != 1 {
		t.Errorf("%d relists", n)
	}
	f.costs("in all", kubesim.Cost{Questions: 9, FullReads: 1, Watches: 7, Others: 1, Forms: 2, Bytes: 5000})
}

// TestCountsMeanNothingInTheNextLife: a later life does not list for them again. It counts
// once, and trusts numbers again once they are equal.
func TestCountsMeanNothingInTheNextLife(t *testing.T) {
	leaves := true
	f := newAudited(t, Options{}, func(lw cache.ListerWatcher) cache.ListerWatcher {
		return lossy{cache.ToListerWatcherWithContext(lw), &leaves}
	})
	for life, want := range []uint64{1, 0, 0, 0} {
		f.list()
		f.endLong()
		f.clock.Step(time.Hour)
		f.watch().Stop()
		if n := f.State().Relists[ReasonCounts]; n != want || f.store.Countless() != leaves {
			t.Errorf("life %d: %d relists, countless %v", life, n, f.store.Countless())
		}
		f.restart()
		if life == 2 {
			leaves = false
			if err := f.relist(t.Context(), ReasonAudit); err != nil {
				t.Fatal(err)
			}
			f.restart()
		}
	}
}

// TestCountsOfTheNextCluster: if a cluster's counts mean nothing, that says nothing about
// the cluster that answers in its place.
func TestCountsOfTheNextCluster(t *testing.T) {
	leaves := true
	f := newAudited(t, Options{Confirm: ConfirmBookmark}, func(lw cache.ListerWatcher) cache.ListerWatcher {
		return lossy{cache.ToListerWatcherWithContext(lw), &leaves}
	})
	f.list()
	f.endLong()
	f.clock.Step(time.Hour)
	f.watch().Stop()
	leaves = false
	if err := f.sim.Recreate(1_000_000); err != nil {
		t.Fatal(err)
	}
	f.create("theirs")
	f.clock.Step(time.Hour) // so that lists do not wait
	f.doubtLink()
	f.watch().Stop()
	then := f.sim.Revision()
	f.create("lost")
	f.doubtLink()
	f.take(f.watch())
	f.overtake(then, func(i int) { f.put("theirs", 10, uint64(i)) })
	w := f.watch()
	f.take(w)
	f.sim.DropConnections()
	for range w.ResultChan() { // it says that the link is broken before the next one begins
	}
	f.doubtLink()
	f.endLong()
	f.clock.Step(time.Hour)
	f.watch()
	if st := f.State(); st.Relists[ReasonCluster] != 1 || st.Relists[ReasonCounts] != 2 {
		t.Errorf("%v", st.Relists)
	}
	if d := f.differs(); d != "" {
		t.Error(d)
	}
}
