package reflector

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestSlowRelistConfirms: a list confirms the state at its begin, even after the watch
// behind it was opened and the Reflector was given its version.
func TestSlowRelistConfirms(t *testing.T) {
	bubble(t, 6, kubesim.Options{}, Options{pageSize: 3, quietTimeout: 10 * time.Minute}, func(f *fixture) {
		f.reflect()
		after(5 * time.Second)
		var slow atomic.Bool
		f.sim.OnRequest = func(r *http.Request) {
			if slow.Load() && r.URL.Query().Get("continue") != "" {
				// on the bubble's clock, which takes no time: the list takes far longer than a
				// watch's question
				time.Sleep(5 * time.Minute) // on the bubble's clock, see above
			}
		}
		f.sim.FailNext(func(r *http.Request) bool {
			return slow.Load() && isWatch(r)
		}, 1<<30, func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-r.Context().Done() // its events are on their way
		})
		slow.Store(true)
		f.sim.EndWatches(apierrors.NewResourceExpired("too old"))
		after(2 * time.Minute) // the first page has been read
		f.create("new")
		after(4 * time.Minute)
		if st := f.State(); time.Since(st.Confirmed) < 5*time.Minute {
			t.Errorf("confirmed %s ago: %s", time.Since(st.Confirmed), st)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.WaitForFresh(ctx, 2*time.Minute); err == nil {
			t.Error("fresh within two minutes, and an object of four minutes ago cannot be read")
		}
		slow.Store(false)
	})
}

// TestAuditOverDeadLink: a due audit confirms nothing.
func TestAuditOverDeadLink(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{AuditEvery: 10 * time.Minute, quietTimeout: 30 * time.Minute},
		func(f *fixture) {
			f.reflect()
			after(5 * time.Minute)
			var off atomic.Bool
			off.Store(true)
			f.sim.FailNext(func(r *http.Request) bool {
				return off.Load() && strings.Contains(r.URL.Path, "configmaps")
			}, 1<<30, nil)
			f.sim.Mute()
			cut := time.Now()
			after(6 * time.Minute)
			if st := f.State(); time.Since(st.Confirmed) < time.Since(cut) {
				t.Errorf("%s: cut %s ago, and confirmed %s ago", st, time.Since(cut), time.Since(st.Confirmed))
			}
			off.Store(false)
		})
}

// TestConfirmTimeoutOfFractions: a timeout that is not in whole seconds still proves that
// a server sends no bookmarks.
func TestConfirmTimeoutOfFractions(t *testing.T) {
	bubble(t, 3, kubesim.Options{NoBookmarks: true}, Options{confirmTimeout: 3500 * time.Millisecond},
		func(f *fixture) {
			f.list()
			f.other()
			f.restart()
			f.sim.ResetRequests()
			f.reflect()
			after(time.Minute)
			if lists, watches, full := f.sent(); !f.queue.HasSynced() || lists > 4 || watches > 4 || full != 1 {
				t.Errorf("synced %v after %d questions, %d watches, %d full reads", f.queue.HasSynced(), lists, watches,
					full)
			}
		})
}

// unpaged is a server that does not page.
func unpaged(lw cache.ListerWatcher) cache.ListerWatcher {
	inner := cache.ToListerWatcherWithContext(lw)
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return inner.ListWithContext(ctx,
				metav1.ListOptions{LabelSelector: o.LabelSelector, FieldSelector: o.FieldSelector})
		},
		WatchFuncWithContext: inner.WatchWithContext,
	}
}

// TestNoVersions: a source without versions syncs with each list, and a watch
// goes on from it without another one. The next life lists again.
func TestNoVersions(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		strip := func(lw cache.ListerWatcher) cache.ListerWatcher {
			return opaqueBy(unpaged(lw), func(string) string { return "" })
		}
		f := fixtureWith(t, sim, 5, clock.RealClock{}, Options{DecodeAll: true}, func(*rest.Config) {}, strip)
		f.reflect()
		after(time.Minute)
		if st := f.State(); !f.queue.HasSynced() || st.Phase != PhaseLive || st.Confirmed.IsZero() {
			t.Fatalf("synced %v, %s", f.queue.HasSynced(), st)
		}
		f.takeTold()
		f.create("new")
		f.delete("cm1")
		after(time.Minute)
		if told := f.takeTold(); told != "Added new, Deleted cm1" {
			t.Errorf("told %q", told)
		}
		if n := len(f.State().Relists); n != 1 || len(f.store.ListKeys()) != 5 {
			t.Errorf("relists %v, %d objects", f.State().Relists, len(f.store.ListKeys()))
		}
		began := time.Now()
		if err := f.WaitForFresh(t.Context(), 0); err != nil || time.Since(began) > time.Minute {
			t.Errorf("fresh after %s: %v", time.Since(began), err)
		}
		// Nothing is missed after the link has broken.
		f.sim.DropConnections()
		f.create("more")
		after(2 * time.Minute)
		if n := len(f.store.ListKeys()); n != 6 || f.State().Phase != PhaseLive {
			t.Errorf("%d objects, %s", n, f.State())
		}
		if st := f.State(); st.Relists[ReasonNoVersion] == 0 || st.Relists[ReasonNoVersion] > 3 {
			t.Errorf("relists %v", st.Relists)
		}
	})
}
