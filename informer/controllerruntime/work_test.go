package controllerruntime

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/informer"
)

func request(name string) (req reconcile.Request) {
	req.Name = name
	return req
}

// TestReconciler: which events are acknowledged after a reconcile depends on its result.
// If an object has two events, the first is acknowledged as soon as a later one is kept.
func TestReconciler(t *testing.T) {
	for name, c := range map[string]struct {
		res    reconcile.Result
		err    error
		panics bool
		done   string // events that are acknowledged
	}{
		"success":               {done: "a1 a2 b1"},
		"a priority":            {res: reconcile.Result{Priority: new(int)}, done: "a1 a2 b1"},
		"again after a time":    {res: reconcile.Result{RequeueAfter: time.Hour}, done: "a1"},
		"an error":              {err: errors.New("no"), done: "a1"},
		"an error for good":     {err: reconcile.TerminalError(errors.New("no")), done: "a1"},
		"a panic":               {panics: true, done: "a1"},
		"an error and a result": {res: reconcile.Result{RequeueAfter: time.Hour}, err: errors.New("no"), done: "a1"},
	} {
		t.Run(name, func(t *testing.T) {
			w := NewWork("test")
			fail := atomic.Bool{}
			fail.Store(true)
			r := w.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				switch {
				case !fail.Load():
					return reconcile.Result{}, nil
				case c.panics:
					panic("in a test")
				}
				return c.res, c.err
			}))
			shares := map[string]*share{}
			for _, event := range []string{"a1", "a2", "b1"} {
				s := newShare(origin{"source", event[:1]}, informer.Event{Key: event[:1]})
				s.left.Add(1)
				w.expect(request("x"), s)
				s.finished()
				shares[event] = s
			}
			other := newShare(origin{"source", "c"}, informer.Event{Key: "c"})
			w.expect(request("y"), other)
			call := func() {
				defer func() { _ = recover() }()              // the reconciler panics on purpose
				_, _ = r.Reconcile(t.Context(), request("x")) // it may fail: what is acknowledged counts
			}
			call()
			if got := acked(shares); got != c.done {
				t.Errorf("acknowledged %q, want %q", got, c.done)
			}
			fail.Store(false)
			call()
			if got := acked(shares); got != "a1 a2 b1" {
				t.Errorf("after a success %q", got)
			}
			if other.left.Load() != 1 || len(w.waiting) != 1 {
				t.Error("another request's events are touched")
			}
		})
	}
}

func acked(shares map[string]*share) (all string) {
	for _, event := range []string{"a1", "a2", "b1"} {
		switch left := shares[event].left.Load(); {
		case left < 0:
			return fmt.Sprint(event, " more than once")
		case left == 0:
			if all != "" {
				all += " "
			}
			all += event
		}
	}
	return all
}

// TestEventWhileReconciling: an event that comes during a reconcile is not
// acknowledged by it, since the reconcile may have read before.
func TestEventWhileReconciling(t *testing.T) {
	w := NewWork("test")
	during := newShare(origin{"source", "a"}, informer.Event{})
	r := w.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		w.expect(request("x"), during)
		return reconcile.Result{}, nil
	}))
	if _, err := r.Reconcile(t.Context(), request("x")); err != nil || during.left.Load() != 1 {
		t.Error(err, during.left.Load())
	}
}

// TestRecorder: each way to add a request ties it to the event, once, and reaches the
// queue. After the handler's call it is not tied to the event.
func TestRecorder(t *testing.T) {
	for name, q := range map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{
		"priorities":    priorityqueue.New[reconcile.Request]("test"),
		"no priorities": workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	} {
		w := NewWork("test")
		s := newShare(origin{"source", "a"}, informer.Event{})
		r := newRecorder(w, q, s)
		r.Add(request("one"))
		r.Add(request("one"))
		r.AddAfter(request("two"), time.Nanosecond)
		r.AddRateLimited(request("three"))
		r.AddWithOpts(priorityqueue.AddOpts{}, request("four"))
		r.AddWithOpts(priorityqueue.AddOpts{After: time.Nanosecond}, request("five"))
		r.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request("six"))
		r.close()
		r.Add(request("late"))
		if s.finished() || s.left.Load() != 6 || len(w.waiting) != 6 {
			t.Errorf("%s: %d requests", name, s.left.Load())
		}
		got := map[string]bool{}
		for len(got) < 7 {
			req, _ := q.Get()
			got[req.Name] = true
			q.Done(req)
		}
		q.ShutDown()
	}
}
