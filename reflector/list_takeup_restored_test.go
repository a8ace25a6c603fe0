package reflector

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestRestoredNotTakenUp: the pages of a first list that a restore has made void are not
// taken up, in this life or the next, although the server has overtaken them since.
func TestRestoredNotTakenUp(t *testing.T) {
	for _, another := range []bool{false, true} {
		t.Run(fmt.Sprintf("another life %v", another), func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
				then := f.sim.Revision()
				f.put("cm0", 10, 1)    // is lost, and no number of objects shows that
				var phase atomic.Int32 // 0: two pages, then nothing; 1: further pages only; 2: all
				var pages atomic.Int32
				f.sim.FailNext(func(r *http.Request) bool {
					if !strings.Contains(r.URL.Path, "configmaps") {
						return false
					}
					page := r.URL.Query().Get("limit") == "3"
					switch phase.Load() {
					case 0:
						return page && pages.Add(1) > 2
					case 1:
						return r.URL.Query().Get("continue") == ""
					}
					return false
				}, 1<<30, kubesim.Answer(apierrors.NewInternalError(errors.New("starting"))))
				end := f.live()
				after(30 * time.Second)
				if err := f.sim.Rewind(then); err != nil {
					t.Fatal(err)
				}
				phase.Store(1)
				noticed := until(func() bool { return f.link.is(linkRestored) })
				if another {
					f.die(end)
					end = f.live()
				}
				f.t.Cleanup(end)
				if !noticed {
					t.Fatalf("nobody has noticed: %s", f.State())
				}
				for i := range 5 {
					f.create(fmt.Sprint("other", i))
				}
				phase.Store(2)
				if !until(f.queue.HasSynced) {
					t.Fatal("not synced")
				}
				after(time.Hour)
				if d := f.differs(); d != "" {
					t.Errorf("%s: %s %v", d, f.State(), f.store.ListKeys())
				}
			})
		})
	}
}

// TestServerAwayAfterRestore: a first list that began again because the server was
// restored continues after an outage of that server, like any other.
func TestServerAwayAfterRestore(t *testing.T) {
	bubble(t, 0, kubesim.Options{}, Options{pageSize: 100}, func(f *fixture) {
		f.slow(1000)
		then := f.sim.Revision()
		for range 3 {
			f.other()
		}
		f.reflect()
		after(time.Minute)
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		if !until(func() bool { return f.traffic().firsts == 2 }) {
			t.Fatal("nobody has noticed")
		}
		after(2 * time.Minute)
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		f.sim.DropConnections()
		after(pagePatience + 5*time.Minute)
		if st := f.State(); st.Phase != PhaseOffline || f.store.State().Synced {
			t.Fatal(st)
		}
		if err := f.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced")
		}
		if n := f.traffic(); n.firsts != 2 {
			t.Errorf("%+v", n)
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
	})
}
