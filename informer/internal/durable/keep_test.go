package durable

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestKeepOfManyKeys: if memory is full, a key is kept without a look at all others. A
// worker with one item for all objects keeps each of them, again and again.
func TestKeepOfManyKeys(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.mu.Lock()
	var told []*Delivery
	for i := range 50_000 {
		q := &keyQueue{key: fmt.Sprint("default/x", i), tasks: []*task{{last: 1}}, told: 1} // only the file has its entry
		d.queues.ofKey[q.key] = q
		told = append(told, &Delivery{s: &d.queues, q: q, t: q.tasks[0]})
	}
	d.queues.memory.blocked = true
	d.mu.Unlock()
	began := time.Now()
	for range 3 {
		for _, dl := range told {
			dl.Keep()
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
	d.mu.Lock()
	d.queues.reset()
	d.queues.memory.blocked = false
	d.mu.Unlock()
	s.end()
}

// TestKeptBeforeItsCallReturns: a worker may be done before the handler has returned. If
// memory is full the key is moved to the file once it has.
func TestKeptBeforeItsCallReturns(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay.walk, d.o.StuckAfter = walk{}, time.Hour
	s.change(cache.Added, "a")
	s.flush()
	s.fillUntil(func() bool { return len(d.queues.ofKey) > 0 })
	told := s.called("default/a")
	d.mu.Lock()
	d.o.MaxPending = 1
	d.block()
	d.mu.Unlock()
	told.Keep()
	d.queues.returned(told, ErrAckLater)
	eventually(t, "it moved out", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.queues.ofKey["default/a"].tasks[0].entry == nil
	})
	s.end()
}
