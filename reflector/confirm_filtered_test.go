package reflector

import (
	"testing"
	"testing/synctest"
	"time"

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
			if n := st.Relists[ReasonDiffers]; n != want || f.store.Filtered() != (life > 0) || st.Uncompared != (life == 2) {
				t.Errorf("life %d: %d relists, filtered %v, uncompared %v", life, n, f.store.Filtered(), st.Uncompared)
			}
			if life == 2 {
				for range 3 { // a relist because of the number of objects may put the audit off
					if after(time.Hour); f.State().Relists[ReasonAudit] > 0 {
						break
					}
				}
				if st := f.State(); st.Relists[ReasonAudit] == 0 || f.store.Filtered() {
					t.Errorf("after an audit: relists %v, filtered %v", st.Relists, f.store.Filtered())
				}
			}
			f.die(end)
		}
	})
}
