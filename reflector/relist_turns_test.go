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

// TestTurnsWhileOffline: a relist that waits for its server lets others go on.
func TestTurnsWhileOffline(t *testing.T) {
	bubble(t, 20, kubesim.Options{}, Options{pageSize: 5}, func(f *fixture) {
		var turns []func()
		take := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			done, err := f.store.Upstream.WaitForTurn(ctx)
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
		if st := f.State(); st.Phase != PhaseFailing {
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
