package reflector

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// restoredAndNotListed makes the server lose an object that the file has. A life notices
// that, and ends before it can list.
func (f *fixture) restoredAndNotListed() {
	f.t.Helper()
	then := f.sim.Revision()
	f.create("lost")
	end := f.live()
	if !until(f.queue.HasSynced) {
		f.t.Fatal("not synced")
	}
	var away atomic.Bool
	away.Store(true)
	f.sim.FailNext(func(r *http.Request) bool { return away.Load() && r.URL.Query().Get("limit") == "3" }, 1<<30,
		kubesim.Answer(apierrors.NewInternalError(errors.New("starting"))))
	if err := f.sim.Rewind(then); err != nil { // from here on the source may list at any moment
		f.t.Fatal(err)
	}
	if !until(func() bool { return f.link.is(linkRestored) }) {
		f.t.Fatal("nobody has noticed")
	}
	f.die(end)
	away.Store(false)
}

// TestRestoreRemembered: a restore that one life has noticed, but after which it could
// not list, is not forgotten by the next one, although the server has overtaken the
// file's version since.
func TestRestoreRemembered(t *testing.T) {
	bubble(t, 10, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.restoredAndNotListed()
		f.create("other") // as many objects as the file has, at its version
		f.create("more")
		f.reflect()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced again")
		}
		after(time.Hour)
		if diff := f.differs(); diff != "" {
			t.Errorf("%s, %+v", diff, f.State())
		}
		if st := f.State(); st.Relists[ReasonRestored] != 1 || f.store.State().Timeline != 1 ||
			f.store.Upstream.Facts().Restored {
			t.Errorf("%v, timeline %d, restored %v", st.Relists, f.store.State().Timeline,
				f.store.Upstream.Facts().Restored)
		}
	})
}

// TestRestoredThenAnotherCluster: a noted restore says nothing about another cluster. The
// cached objects are removed.
func TestRestoredThenAnotherCluster(t *testing.T) {
	bubble(t, 10, kubesim.Options{InitialRV: 5000}, Options{pageSize: 3}, func(f *fixture) {
		f.restoredAndNotListed()
		f.takeTold()
		f.recreate(1_000_000)
		f.reflect()
		if !until(f.queue.HasSynced) {
			t.Fatal("not synced again")
		}
		f.ofTheCluster()
		if f.store.Upstream.Facts().Restored || f.store.Upstream.Epoch() != 1 || f.store.State().Timeline != 0 {
			t.Error(f.store.Upstream.Facts().Restored, f.store.Upstream.Epoch(), f.store.State().Timeline,
				f.State().Relists)
		}
	})
}
