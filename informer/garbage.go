package informer

import (
	"context"
	"math"
	"runtime"
	"runtime/metrics"
	"slices"
	"sync"
	"time"
)

// A burst of changes leaves garbage, which Go collects only when as much again has been
// allocated. If the source is quiet after the burst, that takes minutes, and a small
// program looks large for that long. So an informer that rests has garbage collected
// once. Go then gives the memory back by itself. For informers that rest together it is
// collected once.

const (
	// burstBytes is how many bytes of changes are worth a collection.
	burstBytes = 2 << 20
	// restAfter is how long no change must have come. restAgain is the shortest time
	// between two collections.
	restAfter, restAgain = 2 * time.Second, 8 * time.Second
	// mostRests is how many times restAfter a collection waits at most once a burst has ended, for
	// handlers that are still told of it: their calls leave garbage, too.
	mostRests = 4
	// smallHeap bounds the live heap of a program. In a larger one that much garbage does
	// not matter, and a collection is not cheap.
	smallHeap = 128 << 20
)

// handedOut notes how many bytes of changes were handed out.
func (inf *Informer) handedOut(bytes int) {
	if inf.sinceRest.Add(int64(bytes)) >= burstBytes {
		select {
		case inf.bursts <- struct{}{}:
		default:
		}
	}
}

// collectAfterBursts has garbage collected after bursts, until ctx ends. lags is
// [Informer.Lags].
func (inf *Informer) collectAfterBursts(ctx context.Context, lags func() []Lag) {
	wait := func(d time.Duration) bool {
		t := inf.o.clock.NewTimer(d)
		defer t.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-t.C():
			return true
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-inf.bursts:
		}
		var cycles uint64
		for rests, resting := 0, false; !resting; {
			done, behind := inf.sinceRest.Load(), lags()
			cycles = collector().cycles
			if !wait(restAfter) {
				return
			}
			if rests++; done != inf.sinceRest.Load() {
				rests = 0 // the burst goes on
			} else {
				resting = rests == mostRests || slices.EqualFunc(behind, lags(), Lag.sameWork)
			}
		}
		inf.sinceRest.Store(0)
		collect(cycles)
		if !wait(restAgain - restAfter) { // the rest before the next collection takes restAfter
			return
		}
	}
}

// collecting lets one informer of the process at a time collect garbage.
var collecting sync.Mutex

// collect collects garbage, and says whether it has. It does not in a large heap, or if the
// program has switched the collector off. It also does not if another informer or the
// program has done so since the given number of cycles. Cycles that Go begins by itself do
// not count: they may be older than the last garbage.
func collect(since uint64) bool {
	collecting.Lock()
	defer collecting.Unlock()
	if gc := collector(); gc.cycles > since || gc.live > smallHeap || gc.off {
		return false
	}
	runtime.GC()
	return true
}

// collectorState is the state of Go's collector.
type collectorState struct {
	cycles uint64 // completed ones that a program asked for
	live   uint64 // bytes that the last one found in use
	off    bool   // GOGC=off
}

func collector() (c collectorState) {
	s := []metrics.Sample{{Name: "/gc/cycles/forced:gc-cycles"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/gogc:percent"}}
	metrics.Read(s)
	value := func(i int) uint64 {
		if s[i].Value.Kind() != metrics.KindUint64 {
			return 0
		}
		return s[i].Value.Uint64()
	}
	return collectorState{value(0), value(1), value(2) == math.MaxUint64}
}
