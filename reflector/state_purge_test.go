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

// silent is a watch that brings nothing and ends with the one in it.
type silent struct {
	watch.Interface
	out chan watch.Event
}

func (s silent) ResultChan() <-chan watch.Event { return s.out }

// TestPurgeWithoutVersions: objects that a server without versions refuses are purged,
// too, and only once.
func TestPurgeWithoutVersions(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := fixtureWith(t, sim, 3, clock.RealClock{}, Options{PurgeDenied: true}, func(*rest.Config) {},
			func(lw cache.ListerWatcher) cache.ListerWatcher {
				inner := cache.ToListerWatcherWithContext(lw)
				return &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						list, err := inner.ListWithContext(ctx, o)
						if err == nil {
							list.(*corev1.ConfigMapList).ResourceVersion = ""
						}
						return list, err
					},
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						w, err := inner.WatchWithContext(ctx, o)
						if err != nil {
							return nil, err
						}
						out := make(chan watch.Event)
						go func() {
							defer close(out)
							for range w.ResultChan() { // the objects that it has listed
							}
						}()
						return silent{w, out}, nil
					},
				}
			})
		on := f.refuse(refusals["403"])
		f.reflect()
		after(time.Second)
		f.takeTold()
		on.Store(true)
		f.sim.DropConnections()
		after(10 * time.Minute)
		if told := f.takeTold(); told != "Deleted cm0, Deleted cm1, Deleted cm2" || len(f.store.ListKeys()) != 0 ||
			f.State().Phase != PhaseDenied {
			t.Errorf("told %q, %s", told, f.State())
		}
		seq := f.store.State().Seq
		after(10 * time.Minute)
		if now := f.store.State().Seq; now != seq {
			t.Errorf("purged again: %d entries, then %d", seq, now)
		}
		on.Store(false)
		after(2 * time.Minute)
		if told := f.takeTold(); told != "Added cm0, Added cm1, Added cm2" {
			t.Errorf("told %q", told)
		}
	})
}
