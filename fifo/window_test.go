package fifo

import (
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// TestFullInAWindow: who is held up because no more fits does not wait for the
// window to pass, also where it is the output that was full.
func TestFullInAWindow(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{Window: time.Hour}, Options{MaxBytes: 10_000})
	const n = 60 // several times what fits
	failed := make(chan error, 1)
	go func() {
		for i := range n {
			if err := q.Add(object(fmt.Sprint("o", i), i+1)); err != nil {
				failed <- err
			}
		}
		close(failed)
	}()
	full := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.bytes >= q.o.MaxBytes && q.outBytes >= q.o.MaxBytes && len(q.inflight) == 0
	}
	for deadline := time.Now().Add(time.Minute); !full(); {
		if time.Now().After(deadline) {
			t.Fatal("it is never full")
		}
		runtime.Gosched()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		q.mu.Lock()
		accepted, none := q.count, len(q.out) == 0 && len(q.inflight) == 0 && q.bytes < q.o.MaxBytes
		q.mu.Unlock()
		switch {
		case !none:
			pop(t, q)
			continue
		case accepted == n: // what is left waits for the window
			if err := <-failed; err != nil {
				t.Fatal(err)
			}
			return
		case time.Now().After(deadline):
			t.Fatal("nobody is held up, and not all are accepted")
		}
		runtime.Gosched() // who adds is slower than who pops, and there may be too few to be urgent
	}
}

// TestSyncInAWindow: the sync does not wait for the window to pass, however much
// the watch has brought by then.
func TestSyncInAWindow(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{Window: time.Hour}, Options{})
	if err := q.Add(object("first", 1)); err != nil { // it begins a window
		t.Fatal(err)
	}
	pop(t, q)
	q.Confirm("9", time.Now())
	for i := 2; i < 10; i++ {
		if err := q.Add(object("o", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 2; i < 10; i++ {
		pop(t, q)
	}
	select {
	case <-q.Done():
	case <-time.After(time.Minute):
		t.Fatal("everything that was to be popped has been, and it has not synced")
	}
}

// TestOddMaxBytes: whatever the bound, one change fits.
func TestOddMaxBytes(t *testing.T) {
	for _, most := range []int{-1, 1, math.MinInt, math.MaxInt} {
		q, _ := newQueue(t, boltstore.Options{Window: time.Nanosecond}, Options{MaxBytes: most})
		added := make(chan error, 3)
		go func() {
			for i := range 3 {
				added <- q.Add(object(fmt.Sprint("o", i), i+1))
			}
		}()
		for range 3 {
			pop(t, q)
		}
		for range 3 {
			if err := <-added; err != nil {
				t.Fatal(err)
			}
		}
	}
}
