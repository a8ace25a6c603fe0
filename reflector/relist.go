package reflector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// repair is a relist with a backoff of its own: the Reflector's is not told.
func (s *Source) repair(ctx context.Context, reason string, newHistory bool) error {
	now := s.o.Clock.Now()
	if now.Sub(s.last) > 2*time.Minute {
		s.backoff = newBackoff()
	} else {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.o.Clock.After(s.backoff.Step()):
		}
	}
	s.last = s.o.Clock.Now()
	return s.relist(ctx, reason, newHistory)
}

// relist reads everything, page by page, into the file.
func (s *Source) relist(ctx context.Context, reason string, newHistory bool) error {
	done, err := s.store.DB().BeginRelisting(ctx)
	if err != nil {
		return err
	}
	defer done()
	other, err := s.otherCluster(ctx)
	if err != nil {
		return err
	}
	if other {
		reason = ReasonCluster
	}
	s.enter(Relisting, reason)
	ctx = s.noteLink(ctx)
	o := boltstore.RelistOptions{NewHistory: newHistory && !other, ClusterUID: s.clusterUID, Server: s.o.Server,
		FlowSchemaUID: func() string { _, flow := s.askedOver(); return flow }}
	l := s.newLister(reason)
	r, err := s.journal.Relist(ctx, o, l.pages(ctx))
	if errors.Is(err, errTokenExpired) {
		l.ahead.Stop()
		l = s.newLister(reason)
		l.limit, l.fixed = 0, true // as client-go's pager does
		r, err = s.journal.Relist(ctx, o, l.pages(ctx))
	}
	if err != nil {
		l.ahead.Stop()
		return s.fail(ctx, fmt.Errorf("relist %s: %w", s.store.Source(), err))
	}
	s.count(reason)
	s.mu.Lock()
	s.asked, s.restored = true, false // the list's version is the server's
	s.deniedSince = time.Time{}
	s.read = s.o.Clock.Now()
	s.state.LastRelist, s.state.LastRelistAt = reason, s.o.Clock.Now()
	old := s.ahead
	s.ahead = l.ahead
	s.mu.Unlock()
	old.Stop()
	s.o.Logger.V(1).Info("Relisted", "source", s.store.Source().String(), "reason", reason, "resourceVersion", s.journal.Accepted(),
		"objects", r.Objects, "changed", r.Changed, "deleted", r.Deleted)
	return nil
}
