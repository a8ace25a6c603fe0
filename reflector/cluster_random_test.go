package reflector

import (
	"fmt"
	"math/rand"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestClustersInTurn: clusters answer one after another behind the same address, while
// lists of the first lives are cut after some pages.
// In the end only the last cluster's objects are served.
func TestClustersInTurn(t *testing.T) {
	for seed := range 20 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewSource(int64(seed)))
			bubble(t, 9, kubesim.Options{InitialRV: 1000}, Options{pageSize: 3}, func(f *fixture) {
				rv := uint64(100_000)
				var pages, allow atomic.Int64
				f.sim.FailNext(func(q *http.Request) bool {
					return q.URL.Query().Get("limit") == "3" && pages.Add(1) > allow.Load()
				}, 1<<30, nil)
				recreate := func(i int) {
					rv += 100_000
					to := rv
					if r.Intn(3) == 0 {
						to = uint64(1 + r.Intn(5000))
					}
					f.recreate(to)
					for j := range r.Intn(12) {
						f.create(fmt.Sprintf("c%d-%d", i, j))
					}
				}
				for i := range 2 + r.Intn(4) {
					if r.Intn(2) == 0 {
						recreate(i)
					}
					pages.Store(0)
					allow.Store([]int64{0, 1, 2, 3, 1 << 30}[r.Intn(5)])
					end := f.live()
					after(time.Duration(1+r.Intn(40)) * time.Second)
					for range r.Intn(3) {
						if r.Intn(3) == 0 {
							recreate(10 + i)
							after(time.Duration(r.Intn(3)) * 20 * time.Second)
						}
					}
					f.die(end)
				}
				recreate(20)
				pages.Store(0)
				allow.Store(1 << 30)
				f.reflect()
				if !until(f.queue.HasSynced) {
					t.Fatalf("not synced: %s", f.State())
				}
				after(time.Hour)
				if d := f.differs(); d != "" {
					t.Errorf("%s: %s %v", d, f.State(), f.store.ListKeys())
				}
			})
		})
	}
}
