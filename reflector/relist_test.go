package reflector

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestExpiredAndRestored: a server that has gone back, and is read anew for
// another reason before anybody has asked for its version, is noticed by the
// list. Content is compared then, as versions mean something else.
func TestExpiredAndRestored(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{PageSize: 2}, func(f *fixture) {
		then := f.sim.Revision()
		f.put("cm1", 10, 1)
		f.create("lost")
		f.list()
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		f.put("cm1", 10, 2) // the same object and version, and another content
		f.link.expired()
		f.cost()
		f.watch()
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		f.costs("in all", kubesim.Cost{FullReads: 4, Watches: 1, Forms: 3, Bytes: 2300}) // the first page of one list, and another
		if st := f.State(); st.Relists[ReasonRestored] != 1 || st.Relists[ReasonExpired] != 0 {
			t.Errorf("%v", st.Relists)
		}
		if st := f.store.State(); st.History != 1 {
			t.Errorf("history %d", st.History)
		}
	})
}

// TestRestoredAndDamaged: that the server has gone back is not forgotten because
// something else leads to the relist.
func TestRestoredAndDamaged(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		then := f.sim.Revision()
		f.put("cm1", 10, 1)
		f.list()
		if err := f.sim.Rewind(then); err != nil {
			t.Fatal(err)
		}
		f.put("cm1", 10, 2)
		f.link.restored()
		f.link.expired() // both have been noticed, and neither cured
		f.cost()
		if err := f.relist(t.Context(), ReasonDamaged); err != nil {
			t.Fatal(err)
		}
		if d := f.differs(); d != "" {
			t.Error(d)
		}
		f.costs("in all", kubesim.Cost{FullReads: 1, Forms: 2, Bytes: 1100})
		f.watch()
		f.costs("what the relist has cured", kubesim.Cost{Watches: 1})
	})
}

// TestTurnsWhileOffline: a relist that waits for its server lets others go on.
func TestTurnsWhileOffline(t *testing.T) {
	bubble(t, 20, kubesim.Options{}, Options{PageSize: 5}, func(f *fixture) {
		var turns []func()
		take := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			done, err := f.store.DB().BeginRelisting(ctx)
			if err == nil {
				turns = append(turns, done)
			}
			return err
		}
		on := &atomic.Bool{}
		on.Store(true)
		f.sim.FailNext(func(r *http.Request) bool { return on.Load() && r.URL.Query().Get("continue") != "" }, 1<<30,
			kubesim.Answer(apierrors.NewInternalError(errors.New("no"))))
		f.reflect()
		after(time.Minute)
		if st := f.State(); st.Phase != PhaseOffline {
			t.Fatal(st)
		}
		for range 8 { // all, by default
			if err := take(); err != nil {
				t.Fatalf("the turn of one that waits is not to be had: %v", err)
			}
		}
		on.Store(false)
		after(5 * time.Minute) // it waits for its turn now
		if f.store.State().Synced {
			t.Error("it has not waited")
		}
		turns[0]()
		after(time.Minute)
		if d := f.differs(); d != "" || !f.store.State().Synced {
			t.Errorf("synced %v, %s", f.store.State().Synced, d)
		}
		if _, _, full := f.sent(); full > 100 {
			t.Errorf("%d pages", full)
		}
	})
}
