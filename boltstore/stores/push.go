package stores

import (
	"context"
	"errors"

	"github.com/kubewake/kubewake/boltstore"
)

// Push calls push with all objects of the store: at once, and again after commits that
// have changed them. s is an informer's Store, or of a claim. Push stands for
// cache.NewUndeltaStore, with another contract:
//
//   - push runs on the goroutine that called Push, one call at a time. Nobody waits for
//     it: neither the watch, nor a commit, nor a handler.
//   - Each call has one state, that of a commit, as it is when push is called. All
//     commits during a push are one call afterwards. So a slow consumer misses states
//     between, never the last one, and holds nothing but the list that it was given.
//     What tells nothing new, such as a bookmark, a replay or a relist without
//     differences, is no call.
//   - The state is whole. Before the source's first list, after another cluster's
//     contents were set aside, while objects are outdated, and while damage keeps some
//     from being served, push is not called: who acts on what is missing must not see
//     a part.
//   - The first state is the file's, which may be as old as the last life of the
//     process. A consumer that must not act on it waits for the informer's HasSynced
//     before it calls Push.
//
// Each call costs a List. A push that takes its time, by sleeping, bounds how often that
// is. The list is the callee's, its objects are shared and must not be modified.
//
// Push returns when ctx ends, with its cause, or with boltstore.ErrClosed when the
// informer or the claim has ended, after the last state, or the file was closed. A store
// of DB.View is pushed once, since it is not told of commits.
//
// client-go's contract, a call for each write before it returns, is that of
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
