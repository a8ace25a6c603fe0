package reflector

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestRestoredBetweenPages: a server that goes back while a list is read is
// noticed at the next page, be it of the list's version or of what the server
// offers in its place.
func TestRestoredBetweenPages(t *testing.T) {
	for name, tc := range map[string]struct{ repair, expired bool }{
		"first list": {}, "repair": {repair: true}, "first list, expired": {expired: true}, "repair, expired": {true, true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 9, kubesim.Options{}, Options{PageSize: 3}, func(f *fixture) {
				var then uint64
				var pages atomic.Int64
				f.sim.OnRequest = func(r *http.Request) {
					if r.URL.Query().Get("limit") != "3" {
						return
					}
					switch pages.Add(1) {
					case 2:
						if tc.expired {
							f.delete("cm8") // of later
							f.sim.CompactLists()
						}
					case 3:
						if err := f.sim.Rewind(then); err != nil {
							t.Error(err)
						}
					}
				}
				if tc.repair {
					pages.Store(-3)
					f.list()
					pages.Store(0)
				}
				then = f.sim.Revision()
				f.create("cm0a")
				f.create("cm1a")
				if tc.repair {
					f.sim.Compact()
				}
				f.reflect()
				after(time.Minute)
				if d := f.differs(); d != "" || f.State().Phase != PhaseLive {
					t.Errorf("%s, %s", d, f.State())
				}
				n, lists := f.traffic(), 2
				if tc.repair {
					lists = 3
					if told := f.takeTold(); told != "" {
						t.Errorf("told %s", told)
					}
				}
				// The client itself tries ten times.
				if n.firsts != lists || n.pages > 20 || f.State().Relists[ReasonRestored] != 1 {
					t.Errorf("%+v, %v", n, f.State().Relists)
				}
			})
		})
	}
}
