package boltstore

import (
	"context"
	"errors"
	"time"
)

var errNobodyKeeps = errors.New("no informer of this process keeps it up to date")

// WaitForFresh returns nil once the server has confirmed the source no longer than maxAge
// ago, and all of it can be read. The informer of this process that keeps the source up
// to date asks the server if necessary. So readers of a view ([DB.View]) may call it,
// too. If there is no such informer, or it cannot reach the server, the error comes at
// once. Otherwise it is the context's.
func (s *Store) WaitForFresh(ctx context.Context, maxAge time.Duration) error {
	if keeper := s.db.claims.find(s.id); keeper != nil {
		if f := keeper.life.freshness.Load(); f != nil {
			return f.wait(ctx, maxAge)
		}
	}
	return errNobodyKeeps
}

// WaitForVersion returns nil once every change up to the version can be read: the server has
// had that version, perhaps by changes of other types, and has confirmed the source since.
// It asks as WaitForFresh does, and has its errors.
func (s *Store) WaitForVersion(ctx context.Context, version string) error {
	if keeper := s.db.claims.find(s.id); keeper != nil {
		if f := keeper.life.freshness.Load(); f != nil {
			return f.reached(ctx, version)
		}
	}
	return errNobodyKeeps
}

// InUse says whether this program has the source claimed, as [State].InUse does.
func (s *Store) InUse() bool {
	return s.db.claims.find(s.id) != nil
}

// freshness: see SetFreshness.
type freshness struct {
	wait    func(ctx context.Context, maxAge time.Duration) error
	reached func(ctx context.Context, version string) error
	age     func() (age time.Duration, ok bool)
}

// SetFreshness says how WaitForFresh and WaitForVersion wait, and how long ago the server confirmed all that
// can be read. ok is false if that is not known.
func (s *Claimed) SetFreshness(
	wait func(ctx context.Context, maxAge time.Duration) error,
	reached func(ctx context.Context, version string) error,
	age func() (age time.Duration, ok bool),
) {
	s.life.freshness.Store(&freshness{wait, reached, age})
}

// confirmedSince puts into st a confirmation and a comparison that the file does not have yet: it notes one
// without a change later, since each commit wears the disk.
func (cl *claims) confirmedSince(st *State, now time.Time) {
	keeper := cl.find(st.Source.ID())
	if keeper == nil || !st.Synced {
		return
	}
	keeper.comparedSince(st)
	f := keeper.life.freshness.Load()
	if f == nil {
		return
	}
	if age, ok := f.age(); ok && (st.ConfirmedAge == nil || age < *st.ConfirmedAge) {
		st.Confirmed, st.ConfirmedAge = now.Add(-age).Round(0), &age
	}
}
