package stores

import (
	"context"
	"errors"

	"github.com/kubewake/kubewake/boltstore"
)

// Push calls push with all objects of the store: at once, and again after commits that
// have changed them. s is the Store of an informer or of a claim. Push takes the place of
// cache.NewUndeltaStore, but its contract differs:
//
//   - push runs on the goroutine that called Push, one call at a time. Neither the watch,
//     nor a commit, nor a handler waits for it.
//   - Each call has one state, that of the newest commit when push is called. All commits
//     during a push lead to one call after it. So a slow consumer misses states in
//     between, but never the last one, and holds nothing but its list. Commits that
//     change no object, such as those of a bookmark or of a relist without differences,
//     lead to no call.
//   - The state is whole. push is not called before the source's first list, after
//     another cluster's contents were removed, while objects are outdated, or while
//     damage keeps some from being served. A consumer that acts on missing objects must
//     not see a part.
//   - The first state is the file's, which may be as old as the last life of the
//     process. A consumer that must not act on it waits for the informer's HasSynced
//     before it calls Push.
//
// Each call costs a List. To bound how often that happens, let push take its time, for
// example by sleeping. The list belongs to push; its objects are shared and must not be
// modified.
//
// Push returns when ctx ends, with its cause. It returns boltstore.ErrClosed when the
// informer or the claim has ended, after the last state, or when the file is closed. A
// store of DB.View is pushed once, since it does not learn of commits.
//
// For client-go's contract, a call for each write before the write returns, use
// cache.UndeltaStore{Store: claimed, PushFunc: push}.
func Push(ctx context.Context, s *boltstore.Store, push func(objs []any)) error {
	var last boltstore.Contents
	for ctx.Err() == nil {
		changed, ended := s.Changed()
		objs, is, err := s.ListWhole(last)
		switch {
		case errors.Is(err, boltstore.ErrClosed):
			return err
		case objs != nil: // an error is healed by a commit
			push(objs)
			last = is
		}
		if ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return context.Cause(ctx)
}
