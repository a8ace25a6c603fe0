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
			return len(s.queue) > 0
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

// TestEventsBesideWrites: a program that writes to its informer's store without a pause
// does not hold up the commits of the server's changes or of the told mark.
func TestEventsBesideWrites(t *testing.T) {
	for _, most := range []int{0, 1} {
		eventsBesideWrites(t, Options{Durability: DurabilityProcess, Window: time.Nanosecond, FlushInterval: time.Millisecond, maxCommitBytes: most})
	}
}

func eventsBesideWrites(t *testing.T, o Options) {
	db := openTest(t, testPath(t), o)
	s, p := claimTest(t, db, Claim{}), &testProducer{}
	s.Attach(p)
	writers := writtenWithoutPause(t, s)
	for rv := range 5 {
		p.add(t, s, configMap("a", "event", rv+1, nil))
		eventually(t, "an event is committed", func() bool { return s.State().ResourceVersion == fmt.Sprint(rv+1) })
	}
	s.SetTold(5)
	eventually(t, "the told mark is in the file", func() bool { return s.State().Told == 5 })
	s.Release()
	writers.Wait()
}

// TestCloseBesideWrites: neither Close nor Release waits for endless writes.
func TestCloseBesideWrites(t *testing.T) {
	for i := range 4 {
		fed, most := i%2 == 1, []int{0, 1}[i/2] // each commit has room for all, or for one change
		db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, Window: time.Nanosecond, maxCommitBytes: most})
		s := claimTest(t, db, Claim{})
		if fed {
			s.Attach(&testProducer{})
		}
		writers := writtenWithoutPause(t, s)
		eventually(t, "it writes", func() bool { return s.State().Objects > 0 })
		returns(t, fmt.Sprint("Close, fed ", fed), func() {
			if err := db.Close(); (err != nil) != fed {
				t.Error(err)
			}
		})
		writers.Wait()
	}
}

// TestWriteBehindFailedEvents: while events cannot be committed, a write of the program's
// own returns the disk's error. It does not wait for the disk.
func TestWriteBehindFailedEvents(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s, p := claimTest(t, db, Claim{}), &testProducer{}
	s.Attach(p)
	db.h.setHook(func(*bolt.Tx) error { return errRefused })
	p.add(t, s, configMap("a", "event", 1, nil))
	eventually(t, "the commit has failed", func() bool { return errors.Is(db.Err(), errRefused) })
	returns(t, "Add", func() {
		if err := s.Add(configMap("own", "o", 2, nil)); !errors.Is(err, errRefused) {
			t.Error(err)
		}
	})
	db.h.setHook(nil)
	p.wait(t)
	must(t, s.Add(configMap("own", "o", 3, nil)))
	if keys := s.ListKeys(); len(keys) != 2 || s.State().ResourceVersion != "1" {
		t.Errorf("%v at %+v", keys, s.State())
	}
}

// TestCloseBesideEndlessEvents: Close does not wait for events that go on coming. As much
// as can have been pending by then is committed.
func TestCloseBesideEndlessEvents(t *testing.T) {
	db := openTest(t, testPath(t), Options{Durability: DurabilityProcess, Window: time.Nanosecond, maxCommitBytes: 1 << 20})
	var last *Claimed
	for i := range 3 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		last = claimTest(t, db, Claim{Source: src})
		last.Attach(&endless{t: t, s: last})
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
