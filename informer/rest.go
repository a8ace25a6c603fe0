package informer

import (
	"context"
	"runtime"
	"runtime/metrics"
	"time"
)

// What a burst of changes leaves behind is garbage, which Go collects when as
// much again has been allocated: on a source that is quiet afterwards, minutes
// later. A small program would look large for that long. So an informer has it
// collected once when it rests; Go then gives the memory back by itself.

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
		for done := int64(-1); done != inf.work.Load(); {
			done = inf.work.Load()
			if !wait(restAfter) {
				return
			}
		}
		inf.work.Store(0)
		if heapInUse() <= smallHeap {
			runtime.GC()
		}
		if !wait(restAgain) {
			return
		}
	}
}

// heapInUse is what the last collection found in use.
func heapInUse() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	if metrics.Read(s); s[0].Value.Kind() != metrics.KindUint64 {
		return 0
	}
	return s[0].Value.Uint64()
}
