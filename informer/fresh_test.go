package informer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/kubewake/kubewake/reflector"
)

// TestFreshOutOfReach: readers of the store do not wait for an unreachable server. A
// recent confirmation is fresh enough for them.
func TestFreshOutOfReach(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l := w.live(Options{}).run().synced()
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "offline", func() bool { return l.inf.State().Phase == reflector.PhaseOffline })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := l.inf.Store().WaitForFresh(ctx, time.Hour); err != nil {
		t.Error(err)
	}
	if err := l.inf.Store().WaitForFresh(ctx, 0); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("as of now, from a server out of reach: %v", err)
	}
}
