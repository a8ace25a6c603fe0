package boltstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// relistPatience is how long new data keys wait for relists to end. On a slow
// link one takes long, and beginning it anew costs what is scarce there; new
// keys are in no hurry.
const relistPatience = time.Hour

// relists lets data keys change while no relist is under way: it cannot go on in
// another file. Compaction does not need it, since to a relist its copy is the
// same file.
type relists struct {
	mu      sync.Mutex
	n       int           // under way
	held    bool          // the keys are being changed: none begins
	changed chan struct{} // closed by the next signal, if not nil
}

// begin counts a relist. It waits for new keys under way, as its writes would.
func (g *relists) begin(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.held {
		if err := g.wait(ctx, nil); err != nil {
			return err
		}
	}
	g.n++
	return nil
}

func (g *relists) end() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	g.signal()
}

// hold waits until no relist is under way, though not longer than
// relistPatience: meanwhile others may begin, which must not wait for those
// before them. It keeps new ones back until letGo, and returns how many it has
// not waited for.
func (g *relists) hold(ctx context.Context, c clock.Clock) (disturbed int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	patience := c.NewTimer(relistPatience)
	defer patience.Stop()
	over := false
	for g.held || g.n > 0 && !over {
		err := g.wait(ctx, patience.C())
		if err != nil && !errors.Is(err, errPatience) {
			return 0, err
		}
		over = over || err != nil
	}
	g.held = true
	return g.n, nil
}

func (g *relists) letGo() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held = false
	g.signal()
}

func (g *relists) signal() {
	if g.changed != nil {
		close(g.changed)
		g.changed = nil
	}
}

var errPatience = errors.New("it takes too long")

// wait returns at the next signal. mu is held, but for that time.
func (g *relists) wait(ctx context.Context, patience <-chan time.Time) error {
	if g.changed == nil {
		g.changed = make(chan struct{})
	}
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-patience:
		return errPatience
	case <-ctx.Done():
		return ErrClosed
	}
}
