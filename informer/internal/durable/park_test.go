package durable

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestNackWhileReady: a key whose told events are only in the file gets a new event, is
// refused, and is due again before a worker comes to it.
func TestNackWhileReady(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay.walk, d.o.StuckAfter = walk{}, 0
	s.change(cache.Added, "a")
	s.flush()
	s.fillUntil(func() bool { return len(s.d.queues.ofKey) > 0 })
	told := s.called("default/a")
	d.queues.returned(told, ErrAckLater)
	s.movedOut("default/a")
	s.change(cache.Updated, "a")
	s.flush()
	s.fillUntil(func() bool { return false })
	q := d.queues.ofKey["default/a"]
	if !q.ready {
		t.Fatalf("%+v", q)
	}
	told.End(errUnwilling)
	d.mu.Lock()
	q.waiting = false // it is time
	d.queues.schedule(q)
	d.mu.Unlock()
	go d.queues.work()
	eventually(t, "it is told from the file", func() bool {
		d.fill()
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.queues.ofKey["default/a"] == nil
	})
	d.cancel()
	d.wakeAll()
	var got []cache.DeltaType
	for _, e := range s.told {
		if e.Key == "default/a" {
			got = append(got, e.Type)
		}
	}
	if len(got) != 2 || got[0] != cache.Added || got[1] != cache.Updated {
		t.Errorf("told %v", got)
	}
	s.end()
}

// TestLoadsWithoutRoom: keys that must be read from the file go on even if memory is full
// of changes that wait behind such keys.
func TestLoadsWithoutRoom(t *testing.T) {
	s := stand(t, filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
	d := s.d
	d.replay.walk = walk{}
	d.o.MaxPending, d.o.StuckAfter = 4, time.Millisecond
	s.answers(func(Telling) error { return errUnwilling })
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	d.Start(ctx, &running)
	for i := range 10 {
		s.change(cache.Added, fmt.Sprint("bad", i))
	}
	s.flush()
	eventually(t, "they are in the file", func() bool {
		hs, err := s.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Parked == 10
	})
	d.mu.Lock()
	d.queues.memory.held += d.o.MaxPending
	d.mu.Unlock()
	s.answers(nil)
	eventually(t, "they are told", func() bool { return len(d.Inspect().Tasks) == 0 })
	d.mu.Lock()
	d.queues.memory.held -= d.o.MaxPending
	d.mu.Unlock()
	cancel()
	running.Wait()
	s.end()
}

// TestReloadsWithinAPage: entries that must be read from the file are read, even if a
// page of the replay is in hand, memory is full and a call does not return.
func TestReloadsWithinAPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	s.change(cache.Added, "a")
	s.change(cache.Added, "b")
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{})
	s.rv = 2
	d := s.d
	d.o.MaxPending, d.o.Workers = 1, 2
	s.change(cache.Deleted, "a")
	last := s.flush()
	s.takeIn(last)
	// called gives a key to an imaginary worker.
	called := func(key string) (*keyQueue, *Delivery) {
		d.mu.Lock()
		defer d.mu.Unlock()
		q := d.queues.ofKey[key]
		d.queues.due, q.ready, q.busy = nil, false, true
		d.queues.calls++
		return q, &Delivery{s: &d.queues, q: q, t: q.tasks[0], turn: q.turn}
	}
	a, call := called("default/a")
	d.queues.returned(call, errors.New("no"))
	d.mu.Lock()
	d.block()
	d.mu.Unlock()
	eventually(t, "parked", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		d.mu.Lock()
		defer d.mu.Unlock()
		return a.tasks[0].entry == nil
	})
	s.change(cache.Deleted, "b")
	s.change(cache.Added, "c")
	s.flush()
	var filling sync.WaitGroup
	filling.Go(func() {
		for d.ctx.Err() == nil {
			if tick := d.host.Backlog.Tick(); !d.fill() {
				d.host.Backlog.Wait(d.ctx, tick)
			}
		}
	})
	eventually(t, "full", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.queues.memory.blocked && d.queues.ofKey["default/b"] != nil
	})
	_, call = called("default/b")
	d.mu.Lock()
	a.waiting = false
	d.queues.schedule(a)
	d.mu.Unlock()
	eventually(t, "a is read from the file", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.queues.loads) == 0 && a.tasks[0].entry != nil
	})
	d.queues.returned(call, nil)
	_, call = called("default/a")
	d.queues.returned(call, nil)
	d.cancel()
	d.wakeAll()
	filling.Wait()
	s.end()
}
