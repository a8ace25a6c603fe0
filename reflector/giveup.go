package reflector

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// The caller's list and watch functions may ignore their context, those without
// one must. The end of the source does not wait for such a function: what it
// returns later is dropped.

// giveUp calls fn, and returns the cause of stop's end if that comes first. Then
// drop is called with what fn returns, once it does. A panic is the caller's.
func giveUp[T any](stop context.Context, fn func() (T, error), drop func(T)) (T, error) {
	type result struct {
		v        T
		err      error
		panicked any
	}
	done := make(chan result, 1)
	go func() {
		var r result
		defer func() {
			if r.panicked = recover(); r.panicked != nil && stop.Err() != nil {
				panic(r.panicked) // nobody waits for it
			}
			done <- r
		}()
		r.v, r.err = fn()
	}()
	finish := func(r result) (T, error) {
		if r.panicked != nil {
			panic(r.panicked)
		}
		return r.v, r.err
	}
	select {
	case r := <-done:
		return finish(r)
	case <-stop.Done():
	}
	select {
	case r := <-done:
		return finish(r)
	default:
	}
	go func() {
		if r := <-done; r.err == nil && r.panicked == nil {
			drop(r.v)
		}
	}()
	var none T
	return none, context.Cause(stop)
}

// callList calls the list function with ctx, which ends with stop or earlier.
func (s *ListerWatcher) callList(stop, ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return giveUp(stop, func() (runtime.Object, error) { return s.lw.ListWithContext(ctx, o) }, func(runtime.Object) {})
}

func stopWatch(w watch.Interface) {
	if w != nil {
		w.Stop()
	}
}

// callWatch is callList for the watch function.
func (s *ListerWatcher) callWatch(stop, ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return giveUp(stop, func() (watch.Interface, error) { return s.lw.WatchWithContext(ctx, o) }, stopWatch)
}
