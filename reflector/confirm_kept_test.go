package reflector

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFreshAfterARelist: a list that was kept for callers stands for no answer once an audit has
// read everything before the watch opens: callers that come later are answered.
func TestFreshAfterARelist(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{AuditEvery: time.Hour}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		// the bubble's clock, which takes no time; in it the audit becomes due, and it is time
		// that makes it so, no signal
		f.onSmallLists(func(*http.Request) { time.Sleep(100 * time.Millisecond) }) // on the bubble's clock, see above
		d, ok := f.audit.in()
		if !ok {
			t.Fatal("no audit")
		}
		after(d - 50*time.Millisecond)
		f.other() // otherwise the list itself is compared, and puts the audit off
		f.fresh()
		synctest.Wait() // the audit's objects answer the caller before the audit is counted
		if n := f.State().Relists[ReasonAudit]; n != 1 {
			t.Fatalf("%d audits", n)
		}
		f.breaks.Store(nil)
		for range 2 {
			after(time.Second)
			if took := f.fresh(); took > 3*time.Second {
				t.Fatalf("a later caller waited %s", took)
			}
		}
	})
}
