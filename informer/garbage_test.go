package informer

import (
	"context"
	"fmt"
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

// bursts is an informer whose bursts are collected, on a fake clock.
type bursts struct {
	t     *testing.T
	inf   *Informer
	clock *testclock.FakeClock
}

func newBursts(t *testing.T, lags func(now time.Time) []Lag) *bursts {
	runtime.GC() // the last collection may have found a large heap, of another test, in which none is made
	clock := testclock.NewFakeClock(time.Now())
	b := &bursts{t, &Informer{o: Options{clock: clock}, bursts: make(chan struct{}, 1)}, clock}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		b.inf.collectAfterBursts(ctx, func() []Lag { return lags(clock.Now()) })
	}()
	t.Cleanup(func() { cancel(); <-over })
	return b
}

// collected makes a burst, and says after which time it is collected. Its changes come for the
// given time.
func (b *bursts) collected(lasts time.Duration) time.Duration {
	since, began := collector().cycles, b.clock.Now()
	b.inf.handedOut(burstBytes)
	eventually(b.t, "collected", func() bool {
		if b.clock.HasWaiters() && collector().cycles == since {
			b.clock.Step(restAfter / 4)
			if b.clock.Since(began) <= lasts {
				b.inf.handedOut(1)
			}
		}
		return collector().cycles > since
	})
	return b.clock.Since(began)
}

// TestGarbageOfASecondBurst: a burst that begins right after a collection, and ends soon,
// is collected restAgain after it, and not later.
func TestGarbageOfASecondBurst(t *testing.T) {
	b := newBursts(t, func(time.Time) []Lag { return nil })
	if d := b.collected(0); d > 2*restAfter {
		t.Error("the first burst is collected after", d)
	}
	if d := b.collected(0); d < restAgain || d > restAgain+restAfter/2 {
		t.Error("the second burst is collected after", d)
	}
}

// TestGarbageOfSlowHandlers: a burst is collected once handlers have been told it, too, however
// long it has lasted. Handlers that are told for ever are not waited for.
func TestGarbageOfSlowHandlers(t *testing.T) {
	for name, c := range map[string]struct{ goesOn, least, most time.Duration }{
		"stalled":           {0, restAfter, 2 * restAfter},
		"for three seconds": {3 * time.Second, 2 * restAfter, 4 * restAfter},
		"for an hour":       {time.Hour, mostRests * restAfter, (mostRests + 1) * restAfter},
	} {
		for _, lasts := range []time.Duration{0, 5 * mostRests * restAfter} {
			t.Run(fmt.Sprint(name, lasts), func(t *testing.T) {
				began := time.Now()
				b := newBursts(t, func(now time.Time) []Lag {
					return []Lag{{Handler: "mail", Entries: uint64(max(lasts+c.goesOn-now.Sub(began), 0))}}
				})
				most := c.most
				if lasts > 0 {
					most += restAfter // its end need not be the end of a rest
				}
				if d := b.collected(lasts) - lasts; d < c.least || d > most {
					t.Error("collected after", d)
				}
			})
		}
	}
}
