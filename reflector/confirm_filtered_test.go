package reflector

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestListFunctionThatLeavesOut: a list of metadata disproves a file that a caller's list
// function has filled, and leaves an object out of. One relist shows that; no later start is
// compared, until an audit has listed everything.
func TestListFunctionThatLeavesOut(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := fixtureWith(t, sim, 6, clock.RealClock{}, Options{AuditEvery: time.Hour}, func(*rest.Config) {},
			func(lw cache.ListerWatcher) cache.ListerWatcher {
				return lossy{cache.ToListerWatcherWithContext(lw), new(true)}
			})
		for life, want := range []uint64{0, 1, 0} {
			end := f.live()
			if !until(f.queue.HasSynced) {
				t.Fatal("not synced")
			}
			after(time.Minute)
			st := f.State()
			if n := st.Relists[ReasonDiffers]; n != want || f.store.Upstream.Facts().Filtered != (life > 0) ||
				st.Uncompared != (life == 2) {
				t.Errorf("life %d: %d relists, filtered %v, uncompared %v", life, n, f.store.Upstream.Facts().Filtered,
					st.Uncompared)
			}
			if life == 2 {
				for range 3 { // a relist because of the number of objects may put the audit off
					if after(time.Hour); f.State().Relists[ReasonAudit] > 0 {
						break
					}
				}
				if st := f.State(); st.Relists[ReasonAudit] == 0 || f.store.Upstream.Facts().Filtered {
					t.Errorf("after an audit: relists %v, filtered %v", st.Relists, f.store.Upstream.Facts().Filtered)
				}
			}
			f.die(end)
		}
	})
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
