package fifo

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
)

// TestFlushBehindWhatNobodyPops: who pops may be the one that waits for it.
func TestFlushBehindWhatNobodyPops(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{Window: time.Microsecond}, Options{MaxBytes: 10_000})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	added := 0
	for full := false; ; { // one after the other, and one more behind what is full
		q.mu.Lock()
		idle := len(q.pending)+len(q.inflight) == 0
		done := full
		full = q.outBytes >= q.o.MaxBytes
		q.mu.Unlock()
		if done || ctx.Err() != nil {
			break
		}
		if idle {
			added++
			if err := q.Add(object(fmt.Sprint("o", added), added)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if n := len(s.ListKeys()); n != added {
		t.Fatalf("%d of %d are in the file", n, added)
	}
}

// TestFlushInAWindow: who flushes does not wait for the window to pass.
func TestFlushInAWindow(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{Window: time.Hour}, Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 5 { // the first begins a window, the others come in one
		if err := q.Add(object(fmt.Sprint("o", i), i+1)); err != nil {
			t.Fatal(err)
		}
		if err := q.Flush(ctx); err != nil {
			t.Fatalf("change %d: %v", i, err)
		}
		if n := len(s.ListKeys()); n != i+1 {
			t.Fatalf("%d of %d are in the file", n, i+1)
		}
	}
}

// TestRelistConfirmsItsMoment: a list says what there was when it was asked for,
// not what there is when all of it has come.
func TestRelistConfirmsItsMoment(t *testing.T) {
	var now atomic.Int64
	now.Store(1_000)
	q, s := newQueue(t, boltstore.Options{}, Options{Now: func() time.Time { return time.Unix(now.Load(), 0) }})
	r, err := q.BeginRelist(t.Context(), boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.Add(600)
	if err := errors.Join(r.Page([]runtime.Object{object("a", 5)}), r.Commit(t.Context(), "5", "5")); err != nil {
		t.Fatal(err)
	}
	if got := q.Confirmed().Unix(); got != 1_000 {
		t.Errorf("confirmed at %d", got)
	}
	if got := s.State().Confirmed.Unix(); got != 1_000 {
		t.Errorf("the file says confirmed at %d", got)
	}
}
