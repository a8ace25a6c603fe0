package reflector

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestAnotherClusterIsBehind: if another cluster answers in the middle of a list, at a
// lower version than that of the pages, it is not taken for a restored one: nothing is
// told as deleted, and the file knows its cluster.
func TestAnotherClusterIsBehind(t *testing.T) {
	{
		for _, first := range []bool{false, true} {
			t.Run(fmt.Sprintf("first list %v", first), func(t *testing.T) {
				bubble(t, 9, kubesim.Options{InitialRV: 5000}, Options{pageSize: 3}, func(f *fixture) {
					if !first {
						end := f.live()
						if !until(f.queue.HasSynced) {
							t.Fatal("not synced")
						}
						f.die(end)
						f.takeTold()
						f.create("missed")
						f.sim.Compact()
					}
					var pages atomic.Int64
					var answers atomic.Bool
					f.sim.FailNext(func(r *http.Request) bool {
						return r.URL.Query().Get("limit") == "3" && pages.Add(1) > 1 && !answers.Load()
					}, 1<<30, nil)
					f.reflect()
					after(30 * time.Second)
					if pages.Load() < 2 {
						t.Fatalf("%d pages", pages.Load())
					}
					f.recreate(100)
					answers.Store(true)
					if !until(f.queue.HasSynced) {
						t.Fatal("not synced")
					}
					after(time.Hour)
					f.ofTheCluster()
					if n := f.store.State().Timeline; n > 0 {
						t.Errorf("timeline %d", n)
					}
				})
			})
		}
	}
}

// TestAnotherClusterBehindATakenUpList: another cluster that answers in the middle of a
// continued list refuses its token. The list begins again as that cluster's.
func TestAnotherClusterBehindATakenUpList(t *testing.T) {
	bubble(t, 9, kubesim.Options{InitialRV: 5000}, Options{pageSize: 3}, func(f *fixture) {
		f.interrupted(1)
		var phase, pages atomic.Int64 // 0: pages break, 1: they are refused once, 2: they come
		f.sim.FailNext(func(r *http.Request) bool {
			return phase.Load() == 0 && r.URL.Query().Get("continue") != "" && pages.Add(1) > 0
		}, 1<<30, nil)
		f.sim.FailNext(func(r *http.Request) bool {
			return r.URL.Query().Get("continue") != "" && phase.CompareAndSwap(1, 2)
		}, 1<<30, kubesim.Answer(apierrors.NewResourceExpired("the token is too old")))
		f.reflect()
		after(10 * time.Second)
		if pages.Load() == 0 {
			t.Fatal("not taken up")
		}
		f.recreate(1_000_000)
		phase.Store(1)
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		after(time.Hour)
		if phase.Load() != 2 {
			t.Error("no token was refused")
		}
		f.ofTheCluster()
	})
}
