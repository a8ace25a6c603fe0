package reflector

import (
	"net/http"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFreshOverALeftWatch: a list that was kept for callers stands for no answer once the source
// goes on with the watch that a relist has left: callers that come later are answered.
func TestFreshOverALeftWatch(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.near()
		f.left.a = openAhead(t.Context(), &f.requests, time.Minute, f.queue.AcceptedVersion())
		after(time.Second)
		f.put("cm1", 10, 1)
		first := make(chan error, 1)
		go func() { first <- f.WaitForFresh(t.Context(), 0) }()
		after(time.Second)
		asked := 0
		f.onSmallLists(func(*http.Request) { asked++ })
		f.reflect()
		after(time.Second)
		if asked == 0 {
			t.Fatal("no list was kept")
		}
		if took := f.fresh(); took > 3*time.Second {
			t.Errorf("a later caller waited %s", took)
		}
		if err := <-first; err != nil {
			t.Error(err)
		}
	})
}

// TestFreshAfterARelist: nor does it if an audit reads everything before the watch opens.
func TestFreshAfterARelist(t *testing.T) {
	bubble(t, 3, kubesim.Options{}, Options{AuditEvery: time.Hour}, func(f *fixture) {
		f.reflect()
		after(30 * time.Second)
		f.near()
		f.onSmallLists(func(*http.Request) { time.Sleep(100 * time.Millisecond) }) // the bubble's clock, which takes no time; in it the audit becomes due, and it is time that makes it so, no signal
		d, ok := f.audit.in()
		if !ok {
			t.Fatal("no audit")
		}
		after(d - 50*time.Millisecond)
		f.fresh()
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

// TestStartListOverASlowWatch: a start's list confirms as soon as the watch has brought what the
// file lacks, however long that takes: no bookmark comes sooner.
func TestStartListOverASlowWatch(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.put("cm1", 10, 1)
		f.asleep2()
		way := func(r *http.Request) error {
			if isWatch(r) {
				time.Sleep(5 * time.Second) // the bubble's clock, which takes no time; it is how long the watch takes to open, which no signal shows
			}
			return nil
		}
		f.breaks.Store(&way)
		f.reflect()
		after(4900 * time.Millisecond)
		if f.queue.HasSynced() {
			t.Fatal("confirmed without the watch")
		}
		after(200 * time.Millisecond)
		if !f.queue.HasSynced() {
			t.Error("the list does not confirm")
		}
	})
}
