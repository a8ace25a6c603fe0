package boltstore

import (
	"context"
	"fmt"
)

// WaitForTurn waits for one of 8 turns, so that the sources of a
// file do not all read everything at once. The caller calls done when it has read, or
// before it waits for something else. The error is the context's.
func (s Upstream) WaitForTurn(ctx context.Context) (done func(), err error) {
	select {
	case s.db.relisting <- struct{}{}:
		return func() { <-s.db.relisting }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("boltstore: wait for other sources' relists: %w", context.Cause(ctx))
	}
}
