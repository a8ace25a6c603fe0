package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestMixRestored: a server that was restored to a version between the pages of a list is
// noticed, before the watch has reached the last page's version and in the next life,
// too.
func TestMixRestored(t *testing.T) {
	for i := range 4 {
		another, repair := i&1 > 0, i&2 > 0
		t.Run(fmt.Sprintf("another life %v, repair %v", another, repair), func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
				if repair {
					end := f.live()
					if !until(f.queue.HasSynced) {
						t.Error("not synced")
					}
					f.die(end)
					f.create("missed")
					f.sim.Compact()
				}
				first := f.sim.Revision()
				var pages, watches atomic.Bool // refused
				pages.Store(true)
				watches.Store(true)
				f.sim.FailNext(func(r *http.Request) bool {
					return pages.Load() && r.URL.Query().Get("continue") != "" || isWatch(r) && watches.Load() &&
						r.URL.Query().Get("resourceVersion") == fmt.Sprint(first)
				}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("starting"))))
				end := f.live()
				after(10 * time.Second)
				f.put("cm8", 10, 1) // is lost
				f.sim.CompactLists()
				pages.Store(false)
				if !until(func() bool { return f.store.State().ResourceVersion == fmt.Sprint(first) }) {
					t.Errorf("not listed: %s", f.State())
				}
				if another {
					f.die(end)
				}
				if err := f.sim.Rewind(first); err != nil {
					t.Error(err)
				}
				watches.Store(false)
				if another {
					end = f.live()
				}
				defer end()
				if !until(func() bool { return f.queue.HasSynced() && f.queue.Reached() }) {
					t.Errorf("not synced: %s", f.State())
				}
				after(time.Hour)
				if d := f.differs(); d != "" {
					t.Errorf("%s: %s", d, f.State())
				}
			})
		})
	}
}
