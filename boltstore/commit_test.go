package boltstore

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

func (p *testProducer) add(t *testing.T, s *Claimed, objs ...*corev1.ConfigMap) {
	t.Helper()
	b := &Batch{}
	for _, o := range objs {
		c, err := s.Feed.Prepare(cache.Added, o)
		if err != nil {
			t.Fatal(err)
		}
		b.Changes, b.ResourceVersion = append(b.Changes, c), o.ResourceVersion
	}
	p.put(b)
	s.wake(false)
}

// TestFailedCommitIsRetried is invariant 9: while the disk fails the resume point
// stays, Err says so, other sources can be read, and nothing is lost.
func TestFailedCommitIsRetried(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Millisecond})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("a", "one", 1, nil))
	p.wait(t)
	var failing atomic.Bool
	failing.Store(true)
	tried := make(chan struct{}, 100)
	db.h.writeMu.Lock()
	db.h.hook = func(*bolt.Tx) error {
		if failing.Load() {
			tried <- struct{}{}
			return errors.New("no space left on device")
		}
		return nil
	}
	db.h.writeMu.Unlock()
	p.add(t, s, configMap("a", "two", 2, nil))
	for range 3 {
		<-tried
	}
	if db.Err() == nil || s.LastStoreSyncResourceVersion() != "1" || len(s.ListKeys()) != 1 {
		t.Fatalf("health %v, at %s with %v", db.Err(), s.LastStoreSyncResourceVersion(), s.ListKeys())
	}
	failing.Store(false)
	p.wait(t)
	if s.LastStoreSyncResourceVersion() != "2" || len(s.ListKeys()) != 2 {
		t.Fatalf("at %s with %v", s.LastStoreSyncResourceVersion(), s.ListKeys())
	}
	deadline := time.Now().Add(time.Minute)
	for db.Err() != nil {
		if time.Now().After(deadline) {
			t.Fatal(db.Err())
		}
	}
	if len(p.entries) != 2 || p.entries[1].Key != "a/two" {
		t.Fatalf("told %v", p.entries)
	}
}

// TestIndexAddedDuringChange: a change that was prepared before an index was added, and
// is committed later, is in the index. So is a change under way.
func TestIndexAddedDuringChange(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Millisecond})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	c, err := s.Feed.Prepare(cache.Added, configMap("a", "before", 1, map[string]string{"words": "w"}))
	if err != nil {
		t.Fatal(err)
	}
	p.add(t, s, configMap("a", "under way", 2, map[string]string{"words": "w"}))
	broken := func(any) ([]string, error) { return nil, errors.New("no values") }
	if err := s.AddIndexers(cache.Indexers{"words": indexers["words"], "broken": broken}); err != nil {
		t.Fatal(err)
	}
	p.put(&Batch{Changes: []*Change{c}})
	s.wake(true)
	for range 2 {
		p.wait(t)
	}
	if keys, err := s.IndexKeys("words", "w"); err != nil || len(keys) != 2 {
		t.Fatal(keys, err)
	}
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
}

// TestLeadingEdge: a change to an idle file is committed at once, further ones
// when the window has passed.
func TestLeadingEdge(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Hour, FlushInterval: 24 * time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("a", "one", 1, nil))
	p.wait(t)
	for i := range 5 {
		p.add(t, s, configMap("a", fmt.Sprint("more", i), i+2, nil))
	}
	deadline := time.Now().Add(time.Minute)
	for clk.Waiters() < 2 { // the flush timer and the window
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the window")
		}
	}
	if n := len(s.ListKeys()); n != 1 {
		t.Fatalf("committed within the window: %d", n)
	}
	clk.Step(time.Hour)
	for range 5 {
		p.wait(t)
	}
	if n := len(s.ListKeys()); n != 6 {
		t.Fatalf("%d objects", n)
	}
}

// TestSourcesShareCommits: pending changes of several sources share one transaction.
func TestSourcesShareCommits(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Hour, FlushInterval: 24 * time.Hour, Clock: clk})
	var producers []*testProducer
	var stores []*Claimed
	for i := range 10 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		s := claimTest(t, db, Claim{Source: src})
		p := &testProducer{}
		s.Feed.Attach(p)
		stores, producers = append(stores, s), append(producers, p)
	}
	producers[0].add(t, stores[0], configMap("a", "first", 1, nil))
	producers[0].wait(t)
	before := transactions(t, db)
	for i, p := range producers {
		p.add(t, stores[i], configMap("a", "b", 2, nil))
	}
	deadline := time.Now().Add(time.Minute)
	for clk.Waiters() < 2 {
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for the window")
		}
	}
	clk.Step(time.Hour)
	for _, p := range producers {
		p.wait(t)
	}
	if n := transactions(t, db) - before; n != 1 {
		t.Fatalf("%d transactions", n)
	}
}

// TestJournalRetention: blocks are removed when size and age require it, and never before
// all handlers have been told.
func TestJournalRetention(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, JournalBytes: 1})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	add := func(i int) {
		p.add(t, s, configMap("a", fmt.Sprint(i), i, nil))
		p.wait(t)
	}
	for i := range 20 {
		add(i + 1)
	}
	if got := journalFrom(t, s, 1); len(got) != 20 {
		t.Fatalf("%d entries kept of 20 that nobody was told of", len(got))
	}
	s.Delivery.SetTold(15)
	for i := range 5 {
		add(i + 21)
	}
	got := journalFrom(t, s, 1)
	if len(got) != 10 || got[0].Seq != 16 {
		t.Fatalf("%d entries kept, from %d on", len(got), got[0].Seq)
	}
}

// TestLargeBlock: a block that is compressed in parts reads as one.
func TestLargeBlock(t *testing.T) {
	var drafts []format.Draft
	for i := range 300 {
		b := make([]byte, 5000)
		for j := range b {
			b[j] = byte(i * j >> 3)
		}
		drafts = append(drafts, format.Draft{Type: cache.Updated, Time: int64(i + 1), Key: fmt.Sprint("k", i),
			Next: b, Prev: format.DiffOf(b, b[:4000])})
	}
	for _, n := range []int{1, 2, 150, 300} {
		got, err := format.Owner(1).UnpackBlock(7, format.Owner(1).PackBlock(7, drafts[:n]))
		if err != nil || !reflect.DeepEqual(got, drafts[:n]) {
			t.Fatalf("%d entries: %d read, %v", n, len(got), err)
		}
	}
}
