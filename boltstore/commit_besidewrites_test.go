package boltstore

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// writtenWithoutPause has a program write to s, so that behind each commit another write
// waits, until one is refused.
func writtenWithoutPause(t *testing.T, s *Claimed) (writers *sync.WaitGroup) {
	writers = &sync.WaitGroup{}
	var over atomic.Bool
	var n atomic.Int64
	write := func() {
		obj := configMap("own", "o", int(n.Add(1)), nil)
		writers.Go(func() {
			if err := s.Add(obj); errors.Is(err, ErrClosed) {
				over.Store(true)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	s.db.h.setHook(func(*bolt.Tx) error {
		waits := func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.writer.queue) > 0
		}
		if over.Load() {
			return nil
		}
		write()
		for !waits() && !over.Load() {
			time.Sleep(100 * time.Microsecond) // between two looks: a write gives no signal before it is committed
		}
		return nil
	})
	write()
	return writers
}

// TestCloseBesideWrites: neither Close nor Release waits for endless writes.
func TestCloseBesideWrites(t *testing.T) {
	for _, most := range []int{0, 1} { // each commit has room for all, or for one change
		db := openTest(t, testPath(t),
			Options{Durability: DurabilityProcess, Window: time.Nanosecond, maxCommitBytes: most})
		s := claimTest(t, db, Claim{})
		writers := writtenWithoutPause(t, s)
		eventually(t, "it writes", func() bool { return s.State().Objects > 0 })
		returns(t, "Close", func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		writers.Wait()
	}
}

// TestCloseBesideEndlessEvents: Close does not wait for events that go on coming. As much
// as can have been pending by then is committed.
func TestCloseBesideEndlessEvents(t *testing.T) {
	db := openTest(t, testPath(t),
		Options{Durability: DurabilityProcess, Window: time.Nanosecond, maxCommitBytes: 1 << 20})
	var last *Claimed
	for i := range 3 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		last = claimTest(t, db, Claim{Source: src})
		last.Feed.Attach(&endless{t: t, s: last})
		last.wake(true)
	}
	eventually(t, "events are committed", func() bool { return last.State().Seq > 0 })
	before := last.State().Seq
	returns(t, "Close", func() {
		if err := db.Close(); err == nil {
			t.Error("informers are in use, and Close does not say so")
		}
	})
	if n := last.metaNow().Seq - before; n < 200 { // with their objects in memory each counts some 16 KB
		t.Errorf("%d changes were committed at the end", n)
	}
}
