package reflector

import (
	"context"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// repair is a relist with a backoff of its own: the Reflector's is not told.
func (s *ListerWatcher) repair(ctx context.Context, reason string) error {
	if reason != ReasonUnstored { // that has waits of its own
		if err := s.backOff(ctx); err != nil {
			return err
		}
	}
	if reason != ReasonCluster {
		// The link may be whole, and new connections lead to another cluster.
		s.mu.Lock()
		s.checked, s.asking = false, nil
		s.mu.Unlock()
	}
	return s.relist(ctx, reason)
}

// backOff waits before a repair that follows another.
func (s *ListerWatcher) backOff(ctx context.Context) error {
	if now := s.o.Clock.Now(); now.Sub(s.last) > 2*time.Minute {
		s.backoff = newBackoff()
	} else {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.o.Clock.After(s.backoff.Step()):
		}
	}
	s.last = s.o.Clock.Now()
	return nil
}

// relist reads everything, page by page, into the file.
func (s *ListerWatcher) relist(ctx context.Context, reason string) error {
	t := &turn{db: s.store.DB()}
	if err := t.take(ctx); err != nil {
		return err
	}
	defer t.leave()
	if known := s.store.State(); !known.Synced || known.FlowSchemaUID == "" { // else the first page tells
		other, err := s.otherCluster(ctx)
		if err != nil {
			return err
		}
		if other {
			reason = ReasonCluster
		}
	}
	l, err := s.readAll(s.noteLink(ctx), reason, t)
	if err != nil {
		return err
	}
	s.count(l.reason)
	s.mu.Lock()
	s.asked, s.checked = true, true // the list's version is the server's
	s.restored, s.expired, s.unreadable = false, false, false
	s.deniedSince = time.Time{}
	s.formDue = min(s.formDue, 1)
	s.read = s.o.Clock.Now()
	s.state.LastRelist, s.state.LastRelistAt = l.reason, s.o.Clock.Now()
	old := s.ahead
	s.ahead = l.ahead
	s.mu.Unlock()
	old.Stop()
	s.triedAgain()
	r := l.relist
	s.o.Logger.V(1).Info("Relisted", "source", s.store.Source().String(), "reason", l.reason, "resourceVersion", s.queue.Accepted(),
		"objects", r.Objects, "changed", r.Changed, "deleted", r.Deleted)
	return nil
}

// turn is one of the file's MaxRelists.
type turn struct {
	db   *boltstore.DB
	done func() // nil: it is not taken
}

func (t *turn) take(ctx context.Context) (err error) {
	t.done, err = t.db.BeginRelisting(ctx)
	return err
}

func (t *turn) leave() {
	if t.done != nil {
		t.done()
		t.done = nil
	}
}
