package reflector

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestUnreadableEvent: an event that the client cannot read, or that the server
// cannot send, does not hold up what follows for as long as the server has it:
// everything is read instead, at first soon, then ever less often.
func TestUnreadableEvent(t *testing.T) {
	for name, forever := range map[string]bool{"one": false, "all": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
				f.reflect()
				after(time.Second)
				f.takeTold()
				at := fmt.Sprint(f.sim.Revision())
				f.sim.FailNext(func(r *http.Request) bool {
					return isWatch(r) && (forever || r.URL.Query().Get("resourceVersion") == at)
				}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					fmt.Fprint(w, `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":7}}}`+"\n")
				})
				f.sim.DropConnections()
				f.put("cm1", 10, 1)
				f.delete("cm2")
				f.other()
				f.forget()
				after(5 * time.Minute)
				if d := f.differs(); d != "" {
					t.Error(d)
				}
				if told := f.takeTold(); told != "Deleted cm2, Updated cm1" {
					t.Errorf("told %q", told)
				}
				st := f.State()
				if n := st.Relists[ReasonUnreadable]; n != 1 && !forever || forever && n > 3 || st.Phase != PhaseLive && !forever {
					t.Errorf("%s, %v", st, st.Relists)
				}
				after(2 * time.Hour)
				if n := f.State().Relists[ReasonUnreadable]; n != 1 && !forever || n > 8 {
					t.Errorf("%d lists", n)
				}
			})
		})
	}
}
