package reflector

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestNoBookmarks: a server that sends none is proved fresh by one full list in a life of
// the process, after two short watches; a later break of the link costs a question and a
// long watch, and the age is stated.
func TestNoBookmarks(t *testing.T) {
	bubble(t, 5, kubesim.Options{NoBookmarks: true}, Options{Confirm: ConfirmBookmark}, func(f *fixture) {
		f.list()
		f.other()
		f.restart()
		f.cost()
		f.reflect()
		after(time.Second)
		if f.queue.HasSynced() {
			t.Error("synced behind the server's version")
		}
		after(10 * time.Second)
		if !f.queue.HasSynced() {
			t.Error("not synced")
		}
		f.costs("start", kubesim.Cost{Questions: 3, FullReads: 1, Watches: 3, Others: 1, Forms: 2, Bytes: 2700})
		if st := f.State(); st.Phase != PhaseLive || st.Relists[ReasonUnconfirmed] != 1 {
			t.Errorf("%#v", st)
		}
		confirmed := f.State().Confirmed
		f.other()
		f.sim.DropConnections()
		after(time.Minute)
		// Each round may be sent into a connection that is closing, once.
		f.costs("after a broken link", kubesim.Cost{Questions: 2, Watches: 2, Others: 1, Bytes: 730})
		if st := f.State(); st.Phase != PhaseCatchingUp || !st.Confirmed.Equal(confirmed) {
			t.Errorf("%#v", st)
		}
		f.create("event") // confirms as well as a bookmark
		after(time.Second)
		if st := f.State(); st.Phase != PhaseLive || !st.Confirmed.After(confirmed) {
			t.Errorf("%#v", st)
		}
		f.cost()
		after(3 * time.Hour) // no storm
		f.costs("in three quiet hours", kubesim.Cost{Questions: 32, Watches: 31, Others: 3, Bytes: 11700})
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTimeoutAfterExpiry: the watch that follows a repair lives as long as the
// Reflector wants it to.
func TestTimeoutAfterExpiry(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.list()
		f.other()
		f.doubtLink()
		f.sim.FailNext(isWatch, 1, kubesim.Answer(apierrors.NewResourceExpired("too old resource version")))
		f.watchFor(new(int64(400)))
		var timeouts []string
		for _, r := range f.sim.Requests() {
			if r.Verb == "watch" {
				timeouts = append(timeouts, r.Query.Get("timeoutSeconds"))
			}
		}
		if len(timeouts) != 2 || timeouts[0] != "3" || timeouts[1] != "400" {
			t.Errorf("timeouts %v", timeouts)
		}
	})
}

// TestSilentWatch: a watch over an open but dead connection is replaced within two
// minutes, and then the missed changes come.
func TestSilentWatch(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(10 * time.Second)
		f.cost()
		f.sim.Mute()
		f.create("missed")
		after(70 * time.Second)
		if n := len(f.store.ListKeys()); n != 5 {
			t.Errorf("%d objects, the watch is not silent", n)
		}
		after(30 * time.Second)
		if n := len(f.store.ListKeys()); n != 6 {
			t.Errorf("%d objects", n)
		}
		f.costs("replaced", kubesim.Cost{Questions: 1, Watches: 2, Others: 1, Bytes: 1000})
		if st := f.State(); st.Phase != PhaseLive {
			t.Errorf("%#v", st)
		}
		for range 60 { // bookmarks come: it stays
			f.other()
			after(time.Minute)
		}
		// The objects are counted once after the outage.
		f.costs("an hour with bookmarks", kubesim.Cost{Questions: 1, Watches: 9, Bytes: 8000})
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
	})
}

// TestIdleCluster: if nothing changes at all, the server has no bookmark to send. The
// watch is replaced less and less often, and confirmed each time.
func TestIdleCluster(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		f.cost()
		after(6 * time.Hour)
		f.costs("six hours", kubesim.Cost{Questions: 62, Watches: 60, Others: 3, Bytes: 22000})
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
		if st := f.State(); st.Phase != PhaseLive || time.Since(st.Confirmed) > 11*time.Minute {
			t.Errorf("%#v", st)
		}
	})
}

// TestNotLiveWithoutWatch: after a watch has broken, the source is not live until the
// server has answered again, however long that takes.
func TestNotLiveWithoutWatch(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		if st := f.State(); st.Phase != PhaseLive {
			t.Fatal(st)
		}
		f.sim.Stall(true)
		broken := time.Now()
		f.sim.DropConnections() // the next one is taken, and not answered
		after(5 * time.Second)
		if st := f.State(); st.Phase != PhaseConnecting || time.Since(st.Since) > 5*time.Second ||
			st.Since.Before(broken) {
			t.Errorf("%#v", st)
		}
		after(30 * time.Second)
		if st := f.State(); st.Phase != PhaseOffline {
			t.Errorf("%#v", st)
		}
		f.sim.Stall(false)
		after(2 * time.Minute)
		if st := f.State(); st.Phase != PhaseLive {
			t.Errorf("%#v", st)
		}
		f.sim.DropConnections()
		again := time.Now()
		after(10 * time.Second)
		if st := f.State(); st.Phase != PhaseLive || st.Since.Before(again) {
			t.Errorf("%#v", st)
		}
	})
}
