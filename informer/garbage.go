package informer

import (
	"context"
	"math"
	"runtime"
	"runtime/metrics"
	"sync"
	"time"
)

// What a burst of changes leaves behind is garbage, which Go collects when as
// much again has been allocated: on a source that is quiet afterwards, minutes
// later. A small program would look large for that long. So an informer has it
// collected once when it rests; Go then gives the memory back by itself. However
// many informers rest, it is collected once.

const (
	// burst is how many bytes of changes are worth it.
	burst = 8 << 20
	// restAfter is how long nothing must have come, and restAgain how long it is
	// at least from one time to the next.
	restAfter, restAgain = 2 * time.Second, time.Minute
	// smallHeap is how large the live heap of a program may be in which that much
	// garbage counts, and a collection is cheap.
	smallHeap = 128 << 20
)

// worked notes how much has been handed out.
func (inf *Informer) worked(bytes int) {
	if inf.work.Add(int64(bytes)) >= burst {
		select {
		case inf.tired <- struct{}{}:
		default:
		}
	}
}

// resting has garbage collected after bursts, until ctx ends.
func (inf *Informer) resting(ctx context.Context) {
	wait := func(d time.Duration) bool {
		t := inf.o.Clock.NewTimer(d)
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
		case <-inf.tired:
		}
		var cycles uint64
		for done := int64(-1); done != inf.work.Load(); {
			done, cycles = inf.work.Load(), collector().cycles
			if !wait(restAfter) {
				return
			}
		}
		inf.work.Store(0)
		collect(cycles)
		if !wait(restAgain) {
			return
		}
	}
}

// collecting has the informers of a process collect garbage one after the other.
var collecting sync.Mutex

// collect has garbage collected, unless another informer or the program has done
// so since the given number of cycles, the heap is large, or the program has
// switched the collector off. It says whether it has. What Go collects by itself
// does not count: that may be from before the last garbage was left.
func collect(since uint64) bool {
	collecting.Lock()
	defer collecting.Unlock()
	if gc := collector(); gc.cycles > since || gc.live > smallHeap || gc.off {
		return false
	}
	runtime.GC()
	return true
}

// collectorState is what Go says of its collector.
type collectorState struct {
	cycles uint64 // that were asked for, and are completed
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
