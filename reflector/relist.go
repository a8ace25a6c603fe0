package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
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

// errWentBack: a list that was begun for another reason is of a version behind
// the file's.
var errWentBack = errors.New("the server has gone back")

// errAnother: a page may be of another cluster than what was found out before.
var errAnother = errors.New("another server answers")

// relist reads everything, page by page, into the file.
func (s *ListerWatcher) relist(ctx context.Context, reason string) error {
	t := &turn{db: s.store.DB()}
	if err := t.take(ctx); err != nil {
		return err
	}
	defer t.leave()
	find := func() error {
		other, err := s.otherCluster(ctx)
		if other {
			reason = ReasonCluster
		}
		return err
	}
	if known := s.store.State(); !known.Synced || known.FlowSchemaUID == "" { // else the first page tells
		if err := find(); err != nil {
			return err
		}
	}
	ctx = s.noteLink(ctx)
	l, r, err := s.readAll(ctx, reason, t)
	for again := 3; again > 0 && (errors.Is(err, errWentBack) || errors.Is(err, errAnother)); again-- {
		s.mu.Lock()
		s.restored = s.restored || errors.Is(err, errWentBack)
		s.checked = s.checked && errors.Is(err, errWentBack)
		s.mu.Unlock()
		if errors.Is(err, errWentBack) {
			reason = ReasonRestored
		}
		if err := find(); err != nil {
			return err
		}
		l, r, err = s.readAll(ctx, reason, t)
	}
	if err != nil {
		return s.fail(ctx, fmt.Errorf("relist %s: %w", s.store.Source(), err))
	}
	s.count(reason)
	s.mu.Lock()
	s.asked, s.checked = true, true // the list's version is the server's
	s.restored, s.expired, s.unreadable = false, false, false
	s.deniedSince = time.Time{}
	s.formDue = min(s.formDue, 1)
	s.read = s.o.Clock.Now()
	s.state.LastRelist, s.state.LastRelistAt = reason, s.o.Clock.Now()
	old := s.ahead
	s.ahead = l.ahead
	s.mu.Unlock()
	old.Stop()
	s.triedAgain()
	s.o.Logger.V(1).Info("Relisted", "source", s.store.Source().String(), "reason", reason, "resourceVersion", s.queue.Accepted(),
		"objects", r.Objects, "changed", r.Changed, "deleted", r.Deleted)
	return nil
}

// readAll reads one list, and once more if its pages cannot be had.
func (s *ListerWatcher) readAll(ctx context.Context, reason string, t *turn) (*lister, *boltstore.Relist, error) {
	s.enter(PhaseRelisting, reason)
	s.mu.Lock()
	// What is read is not compared by version then.
	late := !s.deniedSince.IsZero() || !s.store.State().Synced || s.formErrors >= mostFormErrors
	s.mu.Unlock()
	form := ""
	if !late {
		var err error
		form, err = s.servedForm(ctx, false)
		if s.formAnswered(err); err != nil {
			return &lister{}, nil, err
		}
	}
	s.mu.Lock()
	known := s.store.State()
	l := s.newLister(reason, t)
	if _, l.flow = s.asking.told(); !s.checked {
		l.flow, s.id = known.FlowSchemaUID, identity{clusterUID: known.ClusterUID, sure: true} // as the first page will show
	}
	o := boltstore.RelistOptions{NewHistory: s.restored && known.Synced, ClusterUID: s.id.clusterUID, Server: s.o.Server, Answered: s.answered, TakeUp: true,
		Form: form, Content: form == "" || reason == ReasonAudit}
	s.mu.Unlock()
	if !o.NewHistory && known.Synced {
		l.least = s.queue.Accepted()
	}
	r, err := s.queue.Relist(ctx, o, l.read(ctx, late))
	o.TakeUp = false
	if l.refused(err) {
		s.o.Logger.Info("A list that was interrupted has to begin anew", "source", s.store.Source().String(), "reason", err.Error())
		l.ahead.Stop()
		l, ctx = s.newLister(reason, t), s.noteLink(ctx)
		r, err = s.queue.Relist(ctx, o, l.read(ctx, late))
	}
	if errors.Is(err, errTokenExpired) {
		l.ahead.Stop()
		least, flow := l.least, l.flow
		l = s.newLister(reason, t)
		l.limit, l.fixed, l.least, l.flow = 0, true, least, flow // as client-go's pager does
		r, err = s.queue.Relist(ctx, o, l.read(ctx, late))
	}
	if err != nil {
		l.ahead.Stop()
	}
	return l, r, err
}

// read returns what reads the list, and with late learns the served form beside it.
func (l *lister) read(ctx context.Context, late bool) fifo.Pages {
	if l.late = late; late {
		return l.served(l.pages(ctx))
	}
	return l.pages(ctx)
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
