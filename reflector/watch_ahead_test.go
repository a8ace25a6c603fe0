package reflector

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestWatchAhead: the kept events of a watch come first, in order, then the later ones;
// too many of them, or an expired version, make them worthless.
func TestWatchAhead(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		rv := f.queue.AcceptedVersion()
		open := func() *ahead { return openAhead(f.t.Context(), &f.requests, time.Minute, rv) }
		f.left = open()
		f.create("kept")
		after(time.Second)
		w, _ := f.takeLeft(rv)
		f.create("later")
		for _, want := range []string{"kept", "later"} {
			if ev := f.next(w); ev.Type != watch.Added || ev.Object.(*corev1.ConfigMap).Name != want {
				t.Errorf("%+v, want %s", ev, want)
			}
		}
		w.Stop()
		f.left = open()
		if w, _ := f.takeLeft("1"); w != nil {
			t.Error("given for another version")
		}
		a := open()
		f.sim.DropConnections()
		f.create("between")
		after(time.Second)
		if a.again(f.t.Context(), &f.requests, time.Minute); a.failed || a.ended {
			t.Error("not opened again")
		}
		f.create("last")
		after(time.Second)
		f.left = a
		w, _ = f.takeLeft(rv)
		for _, want := range []string{"kept", "later", "between", "last"} {
			if ev := f.next(w); ev.Object.(*corev1.ConfigMap).Name != want {
				t.Errorf("%+v, want %s", ev, want)
			}
		}
		w.Stop()
		f.sim.Compact()
		f.left = open()
		after(time.Second)
		if w, _ := f.takeLeft(rv); w != nil {
			t.Error("given though expired")
		}
	})
}

// TestAheadIsNotWaitedFor: a watch that is not answered before its first event,
// as some proxies have it, does not hold up the pages of a slow list.
func TestAheadIsNotWaitedFor(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{pageSize: 50}, func(f *fixture) {
		f.slow(500)
		f.sim.FailNext(isWatch, 1<<30, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
		began := time.Now()
		f.list()
		took, whole := time.Since(began), time.Duration(0)
		for _, r := range f.sim.Requests() {
			whole += time.Duration(r.BodyBytes) * time.Second / (50_000 / 8)
		}
		if took > whole+10*time.Second {
			t.Errorf("it took %s, the link %s", took, whole)
		}
		after(time.Hour)
	})
}

// TestAheadAnsweredLate: a relist that ends before its watch is answered waits
// for that watch, and opens no second one.
func TestAheadAnsweredLate(t *testing.T) {
	bubble(t, 8, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		const late = "X-Late"
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, 1, func(_ http.ResponseWriter, r *http.Request) {
			<-r.Context().Done() // the page is tried again, and a watch opened beside it
		})
		var opened atomic.Int64
		f.sim.FailNext(func(r *http.Request) bool { return isWatch(r) && r.Header.Get(late) == "" }, 1<<30, func(w http.ResponseWriter, r *http.Request) {
			opened.Add(1)
			select {
			case <-time.After(5 * time.Second):
				r.Header.Set(late, "yes")
				f.sim.ServeHTTP(w, r)
			case <-r.Context().Done():
			}
		})
		f.reflect()
		after(3 * time.Minute)
		if diff, st := f.differs(), f.State(); diff != "" || st.Phase != PhaseLive {
			t.Errorf("%s, %#v", diff, st)
		}
		if n := opened.Load(); n != 1 {
			t.Errorf("%d watches were opened, want 1", n)
		}
	})
}
