package informer

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
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
