package reflector

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// opaque gives a server's versions a form that cannot be compared.
func opaque(lw cache.ListerWatcher) cache.ListerWatcher {
	return opaqueBy(lw, func(rv string) string { return "v" + rv })
}

// opaqueBy gives them the form that a function makes.
func opaqueBy(lw cache.ListerWatcher, form func(string) string) cache.ListerWatcher {
	inner := cache.ToListerWatcherWithContext(lw)
	known := func(o metav1.ListOptions) metav1.ListOptions {
		o.ResourceVersion = strings.TrimPrefix(o.ResourceVersion, "v")
		return o
	}
	hide := func(obj runtime.Object) {
		if m, err := meta.Accessor(obj); err == nil && m.GetResourceVersion() != "" {
			m.SetResourceVersion(form(m.GetResourceVersion()))
		}
	}
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := inner.ListWithContext(ctx, known(o))
			if err != nil {
				return nil, err
			}
			m, err := meta.ListAccessor(list)
			if err != nil {
				return nil, err
			}
			m.SetResourceVersion(form(m.GetResourceVersion()))
			return list, meta.EachListItem(list, func(obj runtime.Object) error { hide(obj); return nil })
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, known(o))
			if err != nil {
				return nil, err
			}
			out := make(chan watch.Event)
			proxy := watch.NewProxyWatcher(out)
			go func() {
				defer close(out)
				defer w.Stop()
				for {
					select {
					case ev, open := <-w.ResultChan():
						if !open {
							return
						}
						hide(ev.Object)
						select {
						case out <- ev:
						case <-proxy.StopChan():
							return
						}
					case <-proxy.StopChan():
						return
					}
				}
			}()
			return proxy, nil
		},
	}
}

// TestOpaqueVersions: if versions cannot be compared, only an equal one confirms. An
// event from before the server's stated version does not, nor does our own bookmark; if
// nothing else comes, one full list proves the state.
func TestOpaqueVersions(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := fixtureWith(t, sim, 5, clock.RealClock{}, Options{DecodeAll: true}, func(*rest.Config) {}, opaque)
		f.list()
		f.restart()
		f.cost()
		f.reflect()
		after(time.Second)
		f.costs("equal", kubesim.Cost{Questions: 1, Watches: 1, Others: 1, Bytes: 700})
		if st := f.State(); st.Phase != PhaseLive || !f.queue.HasSynced() { // equal
			t.Fatalf("%+v", st)
		}
		confirmed := f.State().Confirmed
		// While the link is broken others write, and one of ours is among them.
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		after(time.Minute)
		f.create("ours")
		f.other()
		if err := f.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		for range 1200 { // as soon as the event has come
			if strings.Contains(f.takeTold(), "Added ours") {
				break
			}
			after(100 * time.Millisecond)
		}
		if st := f.State(); st.Phase != PhaseCatchingUp || !st.Confirmed.Equal(confirmed) {
			t.Errorf("confirmed by an event from before what the server stated: %+v", st)
		}
		f.costs("broken", kubesim.Cost{Questions: 2, Watches: 2, Others: 1, Bytes: 1000})
		after(3 * time.Minute)
		if st := f.State(); st.Phase != PhaseLive || !st.Confirmed.After(confirmed) {
			t.Errorf("never confirmed: %+v", st)
		}
		f.costs("proven", kubesim.Cost{Questions: 2, Watches: 2, Others: 1, Bytes: 800})
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
	})
}

// TestOpaqueAndBusy: watches that bring something, but never the proof that everything is
// there, are as fruitless as watches that bring nothing.
func TestOpaqueAndBusy(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{NoBookmarks: true})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := fixtureWith(t, sim, 5, clock.RealClock{}, Options{DecodeAll: true}, func(*rest.Config) {}, opaque)
		f.list()
		f.other()
		f.restart()
		f.cost()
		f.every(time.Second, func(i int) {
			f.put("cm1", 10, uint64(i))
			f.other()
		})
		after(300 * time.Millisecond) // no question comes between the two
		f.reflect()
		after(30 * time.Second)
		if st := f.State(); st.Phase != PhaseLive || st.Relists[ReasonUnconfirmed] != 1 || !f.queue.HasSynced() {
			t.Errorf("%+v, synced %v", st, f.queue.HasSynced())
		}
		f.costs("in all", kubesim.Cost{Questions: 3, FullReads: 1, Watches: 3, Others: 1, Forms: 2, Bytes: 11500})
	})
}
