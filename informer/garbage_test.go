package informer

import (
	"context"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"
)

// TestGarbageIsCollectedOnce: many informers that become idle at the same time cause one
// garbage collection, and none if the program has switched the collector off.
func TestGarbageIsCollectedOnce(t *testing.T) {
	rest := func() int64 {
		var n atomic.Int64
		var all sync.WaitGroup
		since := collector().cycles
		for range 20 {
			all.Go(func() {
				if collect(since) {
					n.Add(1)
				}
			})
		}
		all.Wait()
		return n.Load()
	}
	if n := rest(); n > 1 {
		t.Errorf("collected %d times", n)
	}
	before := debug.SetGCPercent(-1)
	defer debug.SetGCPercent(before)
	if n := rest(); n != 0 {
		t.Errorf("collected %d times although that is switched off", n)
	}
}

// TestGarbageOfASecondBurst: a burst that begins right after a collection, and ends soon,
// is collected restAgain after it, and not later.
func TestGarbageOfASecondBurst(t *testing.T) {
	runtime.GC() // the last collection may have found a large heap, of another test, in which none is made
	clock := testclock.NewFakeClock(time.Now())
	inf := &Informer{o: Options{clock: clock}, bursts: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() { defer close(over); inf.collectAfterBursts(ctx) }()
	defer func() { cancel(); <-over }()
	collected := func() (after time.Duration) {
		since, began := collector().cycles, clock.Now()
		inf.handedOut(burstBytes)
		eventually(t, "collected", func() bool {
			if clock.HasWaiters() && collector().cycles == since {
				clock.Step(restAfter / 4)
			}
			return collector().cycles > since
		})
		return clock.Since(began)
	}
	if d := collected(); d > 2*restAfter {
		t.Error("the first burst is collected after", d)
	}
	if d := collected(); d < restAgain || d > restAgain+restAfter/2 {
		t.Error("the second burst is collected after", d)
	}
}
