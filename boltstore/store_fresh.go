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
	if keeper := s.db.claimOf(s.id); keeper != nil {
		if wait := keeper.freshness.Load(); wait != nil {
			return (*wait)(ctx, maxAge)
		}
	}
	return errNobodyKeeps
}

// InUse says whether this program has the source claimed, as [State].InUse does.
func (s *Store) InUse() bool {
	return s.db.claimOf(s.id) != nil
}

// SetFreshness says how WaitForFresh waits.
func (s *Claimed) SetFreshness(wait func(ctx context.Context, maxAge time.Duration) error) {
	s.freshness.Store(&wait)
}
