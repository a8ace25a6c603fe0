package reflector

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestEndsAtEachRequest: a life that ends before its k-th request, or when that has been
// answered, leaves nothing running, and the next life has and tells the server's state.
func TestEndsAtEachRequest(t *testing.T) {
	warm(t)
	for _, repair := range []listMode{listFull, listMetadata} {
		for _, answered := range []bool{false, true} {
			most := 0
			for k, more := 1, true; more; k++ {
				synctest.Test(t, func(t *testing.T) {
					sim := kubesim.New(kubesim.Options{})
					if err := sim.StartPipes(); err != nil {
						t.Fatal(err)
					}
					var left atomic.Int64
					reached := make(chan struct{})
					f := fixtureWith(t, sim, 9, clock.RealClock{}, Options{pageSize: 3, repair: repair},
						func(cfg *rest.Config) {
							cfg.Wrap(func(next http.RoundTripper) http.RoundTripper {
								return roundTripper(func(req *http.Request) (resp *http.Response, err error) {
									if answered {
										resp, err = next.RoundTrip(req)
									}
									if left.Add(-1) == 0 {
										close(reached)
										<-req.Context().Done()
									}
									if !answered {
										resp, err = next.RoundTrip(req)
									}
									return resp, err
								})
							})
						}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
					synced := k > 7 // else it is a first list
					if synced {
						f.list()
						f.restart()
					}
					change := func(n string) {
						f.create("cm1" + n)
						f.put("cm"+n, 10, 1)
					}
					change("4")
					f.delete("cm8")
					f.sim.Compact()
					if left.Store(int64(k)); synced {
						left.Store(int64(k - 7))
					}
					end := f.live()
					after(10 * time.Second)
					select {
					case <-reached:
						most = k
					default:
						more = !synced
					}
					f.die(end)
					left.Store(-1)
					change("5")
					f.delete("cm7")
					f.reflect()
					after(20 * time.Second)
					if d := f.differs(); d != "" || f.State().Phase != PhaseLive {
						t.Errorf("repair %d, request %d, answered %v: %s, %s", repair, k, answered, d, f.State())
					}
				})
			}
			if most < 12 {
				t.Errorf("repair %d: only %d requests", repair, most)
			}
		}
	}
}
