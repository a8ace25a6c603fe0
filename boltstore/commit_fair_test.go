package boltstore

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// endless is a producer that always has more than fits in a transaction.
type endless struct {
	t    *testing.T
	s    *Claimed
	mu   sync.Mutex
	n    int
	stop bool
}

func (p *endless) Take(most int, _ bool) (*Batch, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop {
		return nil, false
	}
	b := &Batch{}
	for b.size() < most {
		p.n++
		c, err := p.s.Feed.Prepare(cache.Updated,
			configMap("a", "busy", p.n, map[string]string{"k": strings.Repeat("x", 4<<10)}))
		if err != nil {
			p.t.Error(err)
			return nil, false
		}
		b.Changes = append(b.Changes, c)
	}
	return b, true
}

func (p *endless) Committed([]*Entry) {}

func (p *endless) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stop = true
}

// TestFairBetweenSources: a source that always has more than fits does not keep the
// others waiting.
func TestFairBetweenSources(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, maxCommitBytes: 64 << 10})
	busy := claimTest(t, db, Claim{})
	e := &endless{t: t, s: busy}
	defer e.end()
	var others []*Claimed
	var producers []*testProducer
	for i := range 3 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		s, p := claimTest(t, db, Claim{Source: src}), &testProducer{}
		s.Feed.Attach(p)
		others, producers = append(others, s), append(producers, p)
	}
	busy.Feed.Attach(e)
	busy.wake(false)
	for rv := range 20 {
		for i, s := range others {
			producers[i].add(t, s, configMap("a", "rare", rv+1, nil))
		}
		for _, p := range producers {
			p.wait(t)
		}
	}
}

// TestFailingSourceAlone: a source whose commit fails is retried alone, with its
// changes in order, while other sources' commits go on.
func TestFailingSourceAlone(t *testing.T) {
	// The changes that wait behind it are committed with it, not with the next flush.
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour})
	bad, good := claimTest(t, db, Claim{}), Source(configMaps)
	good.Namespace = "ns"
	other := claimTest(t, db, Claim{Source: good})
	p, q := &testProducer{}, &testProducer{}
	bad.Feed.Attach(p)
	other.Feed.Attach(q)
	p.add(t, bad, configMap("a", "one", 1, nil))
	p.wait(t)
	in := func(fn func(src, away *bolt.Bucket) error) {
		t.Helper()
		must(t, db.h.update(func(tx *bolt.Tx) error {
			away, err := tx.CreateBucketIfNotExists([]byte("elsewhere, for the test"))
			if err != nil {
				return err
			}
			return fn(tx.Bucket(layout.BucketSources).Bucket([]byte(bad.id)), away)
		}, nil))
	}
	in(func(src, away *bolt.Bucket) error {
		return errors.Join(src.MoveBucket(layout.BucketJournal, away),
			src.Put(layout.BucketJournal, []byte("in the way")))
	})
	p.add(t, bad, configMap("a", "two", 2, nil))
	p.add(t, bad, configMap("a", "three", 3, nil))
	for rv := range 3 {
		q.add(t, other, configMap("ns", "b", rv+1, nil))
		q.wait(t)
	}
	if !errors.Is(db.Err(), berrors.ErrIncompatibleValue) || other.LastStoreSyncResourceVersion() != "3" ||
		bad.LastStoreSyncResourceVersion() != "1" {
		t.Fatalf("%v; at %s and %s", db.Err(), bad.LastStoreSyncResourceVersion(), other.LastStoreSyncResourceVersion())
	}
	in(func(src, away *bolt.Bucket) error {
		return errors.Join(src.Delete(layout.BucketJournal), away.MoveBucket(layout.BucketJournal, src))
	})
	p.wait(t)
	p.wait(t)
	var told []string
	for _, e := range p.entries {
		told = append(told, e.Key)
	}
	if got := strings.Join(told, " "); got != "a/one a/two a/three" {
		t.Errorf("told %s", got)
	}
}

// TestRetriesAreApart: failed work is tried again after its backoff, however often changes
// come meanwhile. Until then Err says why it failed, and other sources' commits do not fail.
func TestRetriesAreApart(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour, Clock: clk})
	second := Source(configMaps)
	second.Namespace = "ns"
	bad, other := claimTest(t, db, Claim{}), claimTest(t, db, Claim{Source: second})
	p, q := &testProducer{}, &testProducer{}
	bad.Feed.Attach(p)
	other.Feed.Attach(q)
	in := func(fn func(src *bolt.Bucket) error) {
		t.Helper()
		must(t, db.h.update(func(tx *bolt.Tx) error {
			return fn(tx.Bucket(layout.BucketSources).Bucket([]byte(bad.id)))
		}, nil))
	}
	in(func(src *bolt.Bucket) error { return src.Put(layout.BucketJournal, []byte("in the way")) })
	p.add(t, bad, configMap("a", "one", 1, nil))
	waitFor(t, func() bool { return db.Err() != nil })
	failed := db.Stats().Failed
	for rv := range 20 {
		q.add(t, other, configMap("ns", "b", rv+1, nil))
		bad.wake(true)
		clk.Step(time.Microsecond) // the window
		q.wait(t)
		if db.Err() == nil {
			t.Fatal("Err is silent before the next try")
		}
	}
	if n := db.Stats().Failed - failed; n > 0 {
		t.Errorf("%d tries within the backoff", n)
	}
	in(func(src *bolt.Bucket) error { return src.Delete(layout.BucketJournal) })
	clk.Step(time.Second)
	p.wait(t)
	waitFor(t, func() bool { return db.Err() == nil })
}

// TestReadsDuringCommit: no read waits for a commit that is being synced.
func TestReadsDuringCommit(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{Indexers: indexers})
	p := &testProducer{}
	s.Feed.Attach(p)
	claimHandler(t, s, "test")
	p.add(t, s, configMap("a", "one", 1, map[string]string{"words": "w"}))
	p.wait(t)
	begun, end := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(end) })
	defer release()
	db.h.writeMu.Lock()
	db.h.hook = func(*bolt.Tx) error { // with all that is held over its fsync
		begun <- struct{}{}
		<-end
		return nil
	}
	db.h.writeMu.Unlock()
	p.add(t, s, configMap("a", "two", 2, nil))
	<-begun
	done := make(chan error, 1)
	go func() {
		var errs []error
		try := func(err error) { errs = append(errs, err) }
		_, err := s.ListErr()
		try(err)
		_, _, err = s.GetByKey("a/one")
		try(err)
		_, err = s.ByIndex("words", "w")
		try(err)
		_, err = s.IndexKeys("words", "w")
		try(err)
		_, err = s.Feed.ReadJournal(1)
		try(err)
		_, err = s.Handlers()
		try(err)
		_, err = db.States()
		try(err)
		_, err = s.Feed.Prepare(cache.Added, configMap("a", "three", 3, nil))
		try(err)
		s.Delivery.SetTold(1)
		s.State()
		s.LastStoreSyncResourceVersion()
		if s.Err() != nil || db.Err() != nil || db.Size() == 0 || len(s.ListKeys()) != 1 ||
			len(s.ListIndexFuncValues("words")) == 0 {
			try(errors.New("something is wrong"))
		}
		done <- errors.Join(errs...)
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("a reader waits for the commit")
	}
	go func() {
		for range begun { // those that follow
		}
	}()
	release()
	p.wait(t)
}

// lazyProducer has a bookmark to write, and counts how often it could.
type lazyProducer struct{ written atomic.Int64 }

func (p *lazyProducer) Take(_ int, lazy bool) (*Batch, bool) {
	if !lazy {
		return nil, false
	}
	return &Batch{ResourceVersion: "50"}, false
}

func (p *lazyProducer) Committed([]*Entry) { p.written.Add(1) }

// TestBookmarkInterval: an idle source's bookmark is written once nothing was written
// for bookmarkInterval, and sooner with another commit.
func TestBookmarkInterval(t *testing.T) {
	for _, marked := range []bool{false, true} {
		t.Run(fmt.Sprint("marked ", marked), func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
			db := openTest(t, testPath(t),
				Options{Window: time.Nanosecond, FlushInterval: time.Minute, bookmarkInterval: 10 * time.Minute,
					Clock: clk})
			s := claimTest(t, db, Claim{})
			if err := s.Add(configMap("a", "one", 1, nil)); err != nil {
				t.Fatal(err)
			}
			p := &lazyProducer{}
			s.Feed.Attach(p)
			if marked {
				s.Delivery.SetTold(1)
			}
			minutes := 0
			for ; p.written.Load() == 0 && minutes < 20; minutes++ {
				clk.Step(time.Minute)
				for deadline := time.Now().Add(time.Minute); clk.Waiters() < 1; { // the flush, and it is over
					if time.Now().After(deadline) {
						t.Fatal("nobody waits for the next flush")
					}
				}
			}
			if want := map[bool]int{false: 10, true: 1}[marked]; minutes != want {
				t.Errorf("written after %d minutes, not %d", minutes, want)
			}
			if rv := s.LastStoreSyncResourceVersion(); rv != "50" {
				t.Errorf("at %s", rv)
			}
		})
	}
}
