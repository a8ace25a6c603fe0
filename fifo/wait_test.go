package fifo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// TestFlushBehindWhatNobodyPops: a Flush ends although nothing is popped: the consumer
// itself may be waiting for it.
func TestFlushBehindWhatNobodyPops(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{Window: time.Microsecond}, settings{most: 10_000})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	added := 0
	for full := false; ; { // one after the other, and one more behind what is full
		q.mu.Lock()
		idle := len(q.batch.pending)+len(q.batch.inflight) == 0
		done := full
		full = q.output.bytes >= q.most
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

// TestFlushInAWindow: a Flush does not wait for the window to pass.
func TestFlushInAWindow(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{Window: time.Hour}, settings{})
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

// TestFlushWritesBookmarks: an orderly end leaves the newest version in the
// file, so that a quiet wake has nothing to wait for.
func TestFlushWritesBookmarks(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{FlushInterval: time.Hour}, settings{})
	if err := q.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	if err := q.Bookmark("9"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := q.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if rv := s.LastStoreSyncResourceVersion(); rv != "9" {
		t.Fatal(rv)
	}
	if err := q.Bookmark("10"); err != nil {
		t.Fatal(err)
	}
	if err := q.Flush(ctx); err != nil || s.LastStoreSyncResourceVersion() != "10" {
		t.Fatal(err, s.LastStoreSyncResourceVersion())
	}
}

// TestFlushOfAClosedFile: a Flush ends once the file is closed, with an error if
// something is not in the file.
func TestFlushOfAClosedFile(t *testing.T) {
	q, _, file := newFile(t, boltstore.Options{}, settings{})
	if err := q.Add(object("a", 1)); err != nil {
		t.Fatal(err)
	}
	_ = file.Close() // says that the queue is still there
	if err := q.Flush(t.Context()); err != nil {
		t.Errorf("everything is in the file: %v", err)
	}
	if err := q.Add(object("b", 2)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- q.Flush(t.Context()) }()
	select {
	case err := <-ended:
		if !errors.Is(err, boltstore.ErrClosed) {
			t.Errorf("the error is %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("Flush waits for a closed file")
	}
}

// TestFlushOfAReleasedStore: when the store is released, neither Flush nor a list waits
// for a commit that does not come.
func TestFlushOfAReleasedStore(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{}, settings{})
	ended := make(chan error, 3)
	if err := q.Bookmark("5"); err != nil { // it waits for another commit
		t.Fatal(err)
	}
	s.Release()
	if err := q.Add(object("a", 6)); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- q.Flush(t.Context()) }()
	go func() { ended <- q.Replace([]any{object("b", 7)}, "7") }()
	go func() { ended <- q.Purge(t.Context()) }()
	for range cap(ended) {
		select {
		case err := <-ended:
			if !errors.Is(err, boltstore.ErrClosed) {
				t.Errorf("the error is %v", err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it waits for a released store")
		}
	}
}

// TestWaitForNoVersion: an invalid version never comes, so it is not waited for.
func TestWaitForNoVersion(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, settings{})
	for _, add := range []int{0, 1} {
		if add > 0 {
			if err := q.Add(object("a", add)); err != nil {
				t.Fatal(err)
			}
		}
		for _, rv := range []string{"", "0"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			if err := q.WaitVersion(ctx, rv); !errors.Is(err, errNoVersion) {
				t.Errorf("%q after %d changes: %v", rv, add, err)
			}
			cancel()
		}
	}
}
