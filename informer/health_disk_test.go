package informer

import (
	"bytes"
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestHealthBesideTheDisk: the checks and the metrics wait neither for the disk, nor for
// a handler whose name is being written.
func TestHealthBesideTheDisk(t *testing.T) {
	w := newWorld(t)
	w.create("one")
	l := w.live(Options{}).run().synced()
	writing, goOn := make(chan struct{}), make(chan struct{})
	end := sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(end) // before the life ends, even if the test fails
	var once sync.Once
	var under sync.WaitGroup
	under.Go(func() { // no other transaction begins meanwhile
		if _, err := l.db.Compact(context.Background(), func(int64, int64) {
			once.Do(func() { close(writing) })
			<-goOn
		}); err != nil {
			t.Error(err)
		}
	})
	<-writing
	under.Go(func() {
		if _, err := l.inf.AddDurableHandler("mail", newLedger(t), DurableOptions{}); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the name is being written", func() bool {
		stacks := make([]byte, 1<<20)
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("boltstore.Delivery.Claim("))
	})
	late, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for name, ask := range map[string]func(){
		// whether they return counts
		"Ready": func() { _ = Ready(l.db, time.Hour, l.inf)(nil) }, "Live": func() { _ = Live(l.db)(nil) },
		"State": func() { l.inf.State() }, "Lags": func() { l.inf.Lags() }, "IsStopped": func() { l.inf.IsStopped() },
		"HasSynced": func() {
			l.inf.HasSynced()
		}, "LastSyncResourceVersion": func() { l.inf.LastSyncResourceVersion() },
	} {
		done := make(chan struct{})
		go func() { defer close(done); ask() }()
		select {
		case <-done:
		case <-late.Done():
			t.Errorf("%s waits for the disk", name)
		}
	}
	end()
	under.Wait()
	eventually(t, "it is there", func() bool { return len(l.inf.Lags()) == 1 })
}
