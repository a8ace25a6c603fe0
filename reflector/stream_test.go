package reflector

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// streams counts watches that begin with all objects, and pages of lists.
func (f *fixture) streamed() (streams, pages int) {
	for _, r := range f.sim.Requests() {
		switch {
		case r.Query.Get("sendInitialEvents") == "true":
			streams++
		case r.Verb == "list" && r.Query.Get("limit") != "1":
			pages++
		}
	}
	f.sim.ResetRequests()
	return
}

// TestStream: everything is read over one watch, no page is listed, and only
// what differs is told.
func TestStream(t *testing.T) {
	bubble(t, 10, kubesim.Options{}, Options{Repair: RepairStream, PageSize: 3}, func(f *fixture) {
		f.reflect()
		after(time.Minute)
		if streams, pages := f.streamed(); streams != 1 || pages != 0 || !f.journal.HasSynced() {
			t.Errorf("first sync: %d streams, %d pages, synced %v", streams, pages, f.journal.HasSynced())
		}
		f.takeTold()
		// The stream begins once all has changed: one that began before the
		// compaction would expire, and another be due.
		changed := make(chan struct{})
		f.road.Store(new(func(*http.Request) error { <-changed; return nil }))
		f.sim.EndWatches(apierrors.NewResourceExpired("too old"))
		f.create("new")
		f.delete("cm3")
		f.sim.Compact()
		close(changed)
		after(time.Minute)
		if streams, pages := f.streamed(); streams != 1 || pages != 0 || f.State().Relists[ReasonExpired] != 1 {
			t.Errorf("%d streams, %d pages, relists %v", streams, pages, f.State().Relists)
		}
		if told := f.takeTold(); told != "Added new, Deleted cm3" {
			t.Errorf("told %q", told)
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestStreamBreaks: one that breaks begins anew, one that falls silent is given
// up; a server that has gone back is noticed.
func TestStreamBreaks(t *testing.T) {
	bubble(t, 10, kubesim.Options{}, Options{Repair: RepairStream, PageSize: 3}, func(f *fixture) {
		then := f.sim.Revision()
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "true" }, 1, nil)
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") == "true" }, 1, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		})
		f.reflect()
		after(10 * time.Minute)
		if streams, pages := f.streamed(); streams != 3 || pages != 0 || f.State().Phase != Live {
			t.Errorf("%d streams, %d pages, %s", streams, pages, f.State())
		}
		f.create("lost")
		after(time.Minute)
		f.takeTold()
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		after(5 * time.Minute)
		if told := f.takeTold(); told != "Deleted lost" || f.State().Relists[ReasonRestored] != 1 {
			t.Errorf("told %q, relists %v", told, f.State().Relists)
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}

// TestNoStream: a server that refuses, or does not know what it is asked for, is
// listed, and not asked again.
func TestNoStream(t *testing.T) {
	ignorant := func(cfg *rest.Config) {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				q := req.URL.Query()
				if q.Get("sendInitialEvents") != "" {
					q.Del("sendInitialEvents")
					q.Del("resourceVersionMatch")
				}
				req.URL.RawQuery = q.Encode()
				return next.RoundTrip(req)
			})
		})
	}
	for name, setup := range map[string]func(*rest.Config){"refuses": func(*rest.Config) {}, "does not know": ignorant} {
		t.Run(name, func(t *testing.T) {
			warm(t)
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				f := fixtureWith(t, sim, 10, clock.RealClock{}, Options{Repair: RepairStream}, setup, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
				f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("sendInitialEvents") != "" }, 1<<30,
					kubesim.Answer(apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)))
				f.reflect()
				after(5 * time.Minute)
				if d := f.differs(); d != "" || f.State().Phase != Live {
					t.Errorf("%s, %s", f.State(), d)
				}
				f.streamed()
				f.sim.EndWatches(apierrors.NewResourceExpired("too old"))
				after(time.Minute)
				if streams, pages := f.streamed(); streams != 0 || pages == 0 || f.State().Phase != Live {
					t.Errorf("%d streams, %d pages, %s", streams, pages, f.State())
				}
			})
		})
	}
}
