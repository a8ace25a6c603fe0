package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestAuditFails: an audit that cannot be made does not keep the watch closed; it
// is made when it can be.
func TestAuditFails(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{AuditEvery: time.Hour}, func(f *fixture) {
		f.audit.every = time.Hour // not a random part of it
		on := &atomic.Bool{}
		f.sim.FailNext(func(r *http.Request) bool {
			q := r.URL.Query()
			return on.Load() && strings.HasSuffix(r.URL.Path, "/configmaps") && q.Get("watch") == "" &&
				q.Get("limit") != "1"
		}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("too many objects"))))
		f.reflect()
		after(50 * time.Minute)
		on.Store(true)
		after(time.Hour)
		f.takeTold()
		f.create("meanwhile")
		after(time.Minute)
		if told := f.takeTold(); told != "Added meanwhile" {
			t.Errorf("told %q", told)
		}
		if st := f.State(); st.Phase != PhaseLive || st.Relists[ReasonAudit] != 0 {
			t.Errorf("%s %v", st, st.Relists)
		}
		if _, _, full := f.sent(); full > 15 {
			t.Errorf("%d audits were begun", full)
		}
		on.Store(false)
		after(10 * time.Minute)
		if st := f.State(); st.Phase != PhaseLive || st.Relists[ReasonAudit] != 1 {
			t.Errorf("%s %v", st, st.Relists)
		}
	})
}

// TestAudit: a due list finds differences that no count can show.
func TestAudit(t *testing.T) {
	f := newAudited(t, Options{AuditEvery: time.Hour}, nil)
	then := f.sim.Revision()
	f.put("cm1", 10, 1)
	f.put("cm2", 10, 2)
	f.list()
	f.overtake(then, func(i int) { f.put("cm3", 10, uint64(i)) })
	f.take(f.watch())
	w := f.watch()
	if d := f.differs(); d == "" {
		t.Fatal("the server has not been restored")
	}
	began := f.clock.Now()
	for open := true; open; {
		select {
		case _, open = <-w.ResultChan():
		case <-time.After(time.Millisecond):
			f.clock.Step(time.Minute)
		}
	}
	if took := f.clock.Since(began); took < 30*time.Minute || took > time.Hour+time.Minute {
		t.Errorf("after %s", took)
	}
	f.cost()
	f.watch()
	if d := f.differs(); d != "" {
		t.Error(d)
	}
	f.costs("in all", kubesim.Cost{FullReads: 1, Watches: 1, Others: 1, Forms: 2, Bytes: 1500})
	if st := f.State(); st.Relists[ReasonAudit] != 1 {
		t.Errorf("%+v", st)
	}
}

// TestAuditOverManyLives: an audit comes after its period since the last list, even if no
// life lasts that long. Before the audit, the watch confirms the start.
func TestAuditOverManyLives(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{Confirm: ConfirmBookmark, AuditEvery: 3 * time.Hour}, func(f *fixture) {
		audits := uint64(0)
		for life := range 8 {
			end := f.live()
			if !until(f.queue.HasSynced) {
				t.Fatalf("life %d: not synced", life)
			}
			after(50 * time.Minute)
			audits += f.State().Relists[ReasonAudit]
			f.die(end)
			after(10 * time.Minute)
		}
		if audits < 2 || audits > 5 { // within eight hours
			t.Errorf("%d audits", audits)
		}
	})
}

// TestNoStartWaitsForAnAudit: an audit that is long overdue is made after the source has
// been confirmed.
func TestNoStartWaitsForAnAudit(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{AuditEvery: time.Hour}, func(f *fixture) {
		end := f.live()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		f.die(end)
		after(24 * time.Hour)
		f.put("cm1", 10, 99)
		var full, before atomic.Int32
		f.sim.FailNext(func(r *http.Request) bool {
			if q := r.URL.Query(); strings.HasSuffix(r.URL.Path, "/configmaps") && q.Get("watch") == "" &&
				q.Get("limit") != "1" &&
				!strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
				full.Add(1)
				if !f.queue.Reached() {
					before.Add(1)
				}
			}
			return false
		}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("never"))))
		f.reflect()
		if !until(func() bool { return f.State().Relists[ReasonAudit] == 1 }) {
			t.Fatalf("no audit: %s %v", f.State(), f.State().Relists)
		}
		if full.Load() == 0 || before.Load() != 0 {
			t.Errorf("%d lists, %d of them before the source was confirmed", full.Load(), before.Load())
		}
	})
}

// TestAuditNow: an audit that is asked for compares everything at once, also where there are
// none by themselves, and finds what the watch has left out. One that fails is made later.
func TestAuditNow(t *testing.T) {
	bubbleOfLies(t, 6, Options{Confirm: ConfirmBookmark}, lies["loses MODIFIED"], func(f *fixture, _ *liar) {
		f.Audit() // before the source has begun
		f.reflect()
		after(time.Minute)
		f.put("cm1", 10, 77)
		f.create("later")
		after(time.Minute)
		if n := f.State().Relists[ReasonAudit]; n != 0 || f.differs() == "" {
			t.Fatalf("%d audits after a first list, %q differs", n, f.differs())
		}
		on := &atomic.Bool{}
		on.Store(true)
		f.sim.FailNext(func(r *http.Request) bool {
			return on.Load() && strings.HasSuffix(r.URL.Path, "/configmaps") && !isWatch(r) &&
				r.URL.Query().Get("limit") != "1"
		}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("too many objects"))))
		f.Audit()
		after(time.Minute)
		on.Store(false)
		after(2 * postponed)
		if st := f.State(); st.Relists[ReasonAudit] != 1 || st.Differed != 1 || f.differs() != "" {
			t.Errorf("relists %v, %d objects differed, %q still do", st.Relists, st.Differed, f.differs())
		}
		f.Audit()
		if after(time.Hour); f.State().Relists[ReasonAudit] != 2 || f.State().Differed != 0 {
			t.Errorf("relists %v, %d objects differed", f.State().Relists, f.State().Differed)
		}
	})
}

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
