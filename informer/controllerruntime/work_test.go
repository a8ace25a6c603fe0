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
		done   string // events that are acknowledged, the last ones of their objects
	}{
		"success":               {done: "a2 b3 "},
		"a priority":            {res: reconcile.Result{Priority: new(int)}, done: "a2 b3 "},
		"again after a time":    {res: reconcile.Result{RequeueAfter: time.Hour}},
		"an error":              {err: errors.New("no")},
		"an error for good":     {err: reconcile.TerminalError(errors.New("no"))},
		"a panic":               {panics: true},
		"an error and a result": {res: reconcile.Result{RequeueAfter: time.Hour}, err: errors.New("no")},
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
			acked := ""
			tell := func(key string, seq uint64, reqs ...string) {
				e := w.items.Begin(origin{"source", key}, false, func() { acked += fmt.Sprint(key, seq, " ") })
				for _, req := range reqs {
					w.items.Expect(e, request(req))
				}
				if w.items.Close(e) {
					t.Errorf("%s leads to nothing", key)
				}
			}
			tell("a", 1, "x")
			tell("a", 2, "x")
			tell("b", 3, "x")
			tell("c", 4, "y")
			call := func() {
				defer func() { _ = recover() }()              // the reconciler panics on purpose
				_, _ = r.Reconcile(t.Context(), request("x")) // it may fail: what is acknowledged counts
			}
			call()
			if acked != c.done {
				t.Errorf("acknowledged %q, want %q", acked, c.done)
			}
			if c.done == "" {
				tell("b", 5, "x")
				if acked != "" { // it may have told a delete, on which the work has not been done
					t.Errorf("acknowledged %q: the event before", acked)
				}
				fail.Store(false)
				call()
				if acked != "a2 b5 " {
					t.Errorf("after a success %q", acked)
				}
			}
			if w.items.Len() != 1 {
				t.Error("another request's events are touched")
			}
		})
	}
}

// TestEventWhileReconciling: an event that comes during a reconcile is not
// acknowledged by it, since the reconcile may have read before.
func TestEventWhileReconciling(t *testing.T) {
	w := NewWork("test")
	acked := false
	r := w.Reconciler(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
		e := w.items.Begin(origin{"source", "a"}, false, func() { acked = true })
		w.items.Expect(e, request("x"))
		if w.items.Close(e) {
			t.Error("it leads to nothing")
		}
		return reconcile.Result{}, nil
	}))
	if _, err := r.Reconcile(t.Context(), request("x")); err != nil || acked || w.items.Len() != 1 {
		t.Error(err, acked)
	}
}

// TestRecorder: each way to add a request ties it to the event, once, and reaches the
// queue. After the handler's call it is not tied to the event.
func TestRecorder(t *testing.T) {
	for name, q := range map[string]workqueue.TypedRateLimitingInterface[reconcile.Request]{
		"priorities": priorityqueue.New[reconcile.Request]("test"),
		"no priorities": workqueue.NewTypedRateLimitingQueue(
			workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()),
	} {
		w := NewWork("test")
		acked := false
		r := newRecorder(w.items, q, w.items.Begin(origin{"source", "a"}, false, func() { acked = true }))
		r.Add(request("one"))
		r.Add(request("one"))
		r.AddAfter(request("two"), time.Nanosecond)
		r.AddRateLimited(request("three"))
		r.AddWithOpts(priorityqueue.AddOpts{}, request("four"))
		r.AddWithOpts(priorityqueue.AddOpts{After: time.Nanosecond}, request("five"))
		r.AddWithOpts(priorityqueue.AddOpts{RateLimited: true}, request("six"))
		if r.close() {
			t.Errorf("%s: nothing is left to do", name)
		}
		r.Add(request("late"))
		got := map[string]bool{}
		for len(got) < 7 {
			req, _ := q.Get()
			if got[req.Name] = true; req.Name != "late" {
				if acked {
					t.Errorf("%s: acknowledged before %s is done", name, req.Name)
				}
				w.items.Take(req)
				w.items.End(req, true)
			}
			q.Done(req)
		}
		if !acked || w.items.Len() > 0 {
			t.Errorf("%s: acknowledged %v, %d events wait", name, acked, w.items.Len())
		}
		q.ShutDown()
	}
}
