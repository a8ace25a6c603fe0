package boltstore

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	testingclock "k8s.io/utils/clock/testing"
)

func (h *handle) setHook(fn func(*bolt.Tx) error) {
	h.writeMu.Lock()
	defer h.writeMu.Unlock()
	h.hook = fn
}

// setMaxCommitBytes changes it while sources are claimed: the committer reads it at each
// flush.
func setMaxCommitBytes(db *DB, n int) {
	db.commit.busy.Lock()
	defer db.commit.busy.Unlock()
	db.opts.maxCommitBytes = n
}

// TestMarksRideOnTheWindow: if the window is longer than FlushInterval, marks are
// written with the window's changes, not on their own.
func TestMarksRideOnTheWindow(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Minute, FlushInterval: 5 * time.Second, Clock: clk})
	busy, other := claimTest(t, db, Claim{}), configMaps
	other.Namespace = "ns"
	idle := claimTest(t, db, Claim{Source: other})
	p, q := &testProducer{}, &testProducer{}
	busy.Feed.Attach(p)
	idle.Feed.Attach(q)
	q.add(t, idle, configMap("ns", "o", 1, nil))
	q.wait(t)
	waiters := func(n int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); clk.Waiters() != n; {
			if time.Now().After(deadline) {
				t.Fatalf("%d wait for the clock, not %d", clk.Waiters(), n)
			}
		}
	}
	var commits atomic.Int64
	db.h.setHook(func(*bolt.Tx) error { commits.Add(1); return nil })
	for i := range 5 {
		p.add(t, busy, configMap("a", "o", i+1, nil))
		waiters(2) // the window, and the flush
		idle.Delivery.SetTold(1)
		clk.Step(time.Minute)
		p.wait(t)
		waiters(1)
		if n := commits.Load(); n != int64(i+1) {
			t.Fatalf("%d commits in %d windows", n, i+1)
		}
		if told := idle.State().Told; told != 1 {
			t.Fatalf("told up to %d", told)
		}
	}
}

// TestRetryInAWindow: failed work is retried while another source's changes are being
// gathered.
func TestRetryInAWindow(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Hour})
	s, p := claimTest(t, db, Claim{}), &testProducer{}
	s.Feed.Attach(p)
	failures := 3
	db.h.setHook(func(*bolt.Tx) error {
		if failures--; failures < 0 {
			return nil
		}
		s.wake(false)
		return errors.New("disk full")
	})
	p.add(t, s, configMap("a", "o", 1, nil))
	p.wait(t)
}

// TestDirectWritesFail: all concurrent writers get the disk's error, not only the
// first.
func TestDirectWritesFail(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Hour, FlushInterval: time.Hour})
	s := claimTest(t, db, Claim{})
	db.h.setHook(func(*bolt.Tx) error { return errors.New("disk full") })
	db.commit.busy.Lock() // until all have come
	var writers sync.WaitGroup
	const n = 5
	for i := range n {
		writers.Go(func() {
			if err := s.Add(configMap("a", fmt.Sprint("o", i), 1, nil)); err == nil {
				t.Error("stored on a disk that is full")
			}
		})
	}
	come := func() int {
		s.mu.RLock()
		defer s.mu.RUnlock()
		return len(s.writer.queue)
	}
	for come() < n {
		runtime.Gosched()
	}
	db.commit.busy.Unlock()
	done := make(chan struct{})
	go func() { writers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("a writer is not told")
	}
	db.h.setHook(nil)
	if err := s.Add(configMap("a", "o", 1, nil)); err != nil {
		t.Error(err)
	}
}

// TestWindowAfterCommit: the time of a commit counts towards the next window, except
// after a large commit.
func TestWindowAfterCommit(t *testing.T) {
	for _, size := range []int{100, largeCommit} {
		clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
		db := openTest(t, testPath(t), Options{Window: 20 * time.Millisecond, FlushInterval: time.Hour, Clock: clk})
		s, p := claimTest(t, db, Claim{}), &testProducer{}
		s.Feed.Attach(p)
		db.h.setHook(func(*bolt.Tx) error { clk.Step(15 * time.Millisecond); return nil })
		p.add(t, s, configMap("a", "first", 1, map[string]string{"data": strings.Repeat("x", size)}))
		p.wait(t)
		db.h.setHook(nil)
		p.add(t, s, configMap("a", "second", 2, nil))
		if size < largeCommit {
			p.wait(t)
			continue
		}
		for _, d := range []time.Duration{0, 19 * time.Millisecond} {
			clk.Step(d)
			for deadline := time.Now().Add(time.Minute); clk.Waiters() != 2; { // the window, and the flush
				if time.Now().After(deadline) {
					t.Fatal("nobody waits for the window")
				}
			}
			if len(p.done) > 0 {
				t.Fatal("committed within the window")
			}
		}
		clk.Step(time.Millisecond)
		p.wait(t)
	}
}

// TestIdleBetweenFlushes: the committer does not keep a processor busy, however short
// FlushInterval is.
func TestIdleBetweenFlushes(t *testing.T) {
	for _, d := range []time.Duration{-1, 1} {
		db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: d})
		s, p := claimTest(t, db, Claim{}), &askedProducer{}
		s.Feed.Attach(p)
		began := time.Now()
		for i := range 20 {
			p.add(t, s, configMap("a", "o", i+1, nil))
			p.wait(t)
		}
		if asked, most := p.asked.Load(), 100+3*time.Since(began).Milliseconds(); asked > most {
			t.Errorf("FlushInterval %d: asked %d times in %s", d, asked, time.Since(began))
		}
	}
}

// askedProducer counts calls of Take.
type askedProducer struct {
	testProducer
	asked atomic.Int64
}

func (p *askedProducer) Take(most int, lazy bool) (*Batch, bool) {
	p.asked.Add(1)
	return p.testProducer.Take(most, lazy)
}
