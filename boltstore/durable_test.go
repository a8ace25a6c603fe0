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
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
)

// testPosition is a Positioner with a position that the test sets.
type testPosition struct {
	mu   sync.Mutex
	p    Position
	mark uint64
	n    int
	lost int
}

func (p *testPosition) Position() Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.p
}

func (p *testPosition) Persisted(mark uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mark = mark
	p.n++
}

func (p *testPosition) Lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lost++
}

func (p *testPosition) load(pos Position, mark uint64, _ bool) { p.p, p.mark = pos, mark }

func (p *testPosition) set(fn func(p *Position)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	fn(&p.p)
}

// stepped waits for a commit that waits for the clock.
func (p *testProducer) stepped(t *testing.T, clk *testingclock.FakeClock) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case <-p.done:
			return
		case <-deadline:
			t.Fatal("not committed")
		case <-time.After(time.Millisecond):
			clk.Step(time.Millisecond)
		}
	}
}

// TestPositionsRideAlong: a position is written with a commit, needs none of its own,
// and is never ahead of the acknowledged entries.
func TestPositionsRideAlong(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	h, pos := claimHandler(t, s, "test")
	p.add(t, s, configMap("a", "one", 1, nil))
	p.stepped(t, clk)
	before := transactions(t, db)
	pos.set(func(p *Position) { p.Cursor = 1000 }) // a liar, too
	h.Changed()
	if n := transactions(t, db) - before; n != 0 {
		t.Fatalf("%d transactions for an acknowledgement", n)
	}
	p.add(t, s, configMap("a", "two", 2, nil))
	p.stepped(t, clk)
	if n := transactions(t, db) - before; n != 1 {
		t.Fatalf("%d transactions for a change", n)
	}
	if st := handlerState1(t, s); st.Mark != 2 {
		t.Fatalf("%+v", st)
	}
	// The commit fails: neither the change nor the position is in the file.
	var mu sync.Mutex
	fail := errors.New("disk")
	pos.set(func(p *Position) { p.Cursor = 3 })
	db.h.setHook(func(*bolt.Tx) error { mu.Lock(); defer mu.Unlock(); return fail })
	p.add(t, s, configMap("a", "three", 3, nil))
	deadline := time.Now().Add(time.Minute)
	for db.Err() == nil {
		clk.Step(time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatal("the commit did not fail")
		}
	}
	if st := handlerState1(t, s); st.Mark != 2 || s.State().Seq != 2 {
		t.Fatalf("%+v at %d", st, s.State().Seq)
	}
	mu.Lock()
	fail = nil
	mu.Unlock()
	for handlerState1(t, s).Mark != 3 {
		clk.Step(time.Second)
		if time.Now().After(deadline) {
			t.Fatal("the commit was not retried")
		}
	}
	p.stepped(t, clk)
	// Idle, it is written after FlushInterval.
	pos.set(func(p *Position) { p.Replaying = false })
	h.Changed()
	for handlerState1(t, s).Replaying {
		clk.Step(time.Hour)
		if time.Now().After(deadline) {
			t.Fatal("an idle file was not flushed")
		}
	}
}

// TestMarksFailBeforeRelease: a failed commit of only marks is no loss once Release has
// written them.
func TestMarksFailBeforeRelease(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0)) // nothing is tried again by itself
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, FlushInterval: time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	p.add(t, s, configMap("a", "one", 1, nil))
	p.stepped(t, clk)
	var full atomic.Bool
	full.Store(true)
	db.h.setHook(func(*bolt.Tx) error {
		if full.Load() {
			return errors.New("disk")
		}
		return nil
	})
	s.SetTold(1)
	s.Flush()
	for deadline := time.Now().Add(time.Minute); db.Err() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the commit did not fail")
		}
	}
	full.Store(false)
	s.Release()
	if err := db.Err(); err != nil {
		t.Error(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	if told := claimTest(t, db, Claim{}).State().Told; told != 1 {
		t.Errorf("told %d", told)
	}
}

// TestCollapse: the entries that a slow handler needs of a journal that is too large or
// too old are kept by key, and removed when they are acknowledged.
func TestCollapse(t *testing.T) {
	t.Run("large", func(t *testing.T) { testCollapse(t, Options{Window: time.Nanosecond, JournalBytes: 1}) })
	t.Run("old", func(t *testing.T) { testCollapse(t, Options{Window: time.Nanosecond, JournalAge: 1}) })
}

func testCollapse(t *testing.T, o Options) {
	path := testPath(t)
	db := openTest(t, path, o)
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	h, pos := claimHandler(t, s, "test")
	rv := 0
	put := func(name, uid string) {
		rv++
		o := configMap("a", name, rv, nil)
		o.UID = "uid-" + "" + o.UID
		if uid != "" {
			o.UID = "uid2"
		}
		p.add(t, s, o)
		p.wait(t)
	}
	del := func(name string) {
		rv++
		c, err := s.Prepare(cache.Deleted, configMap("a", name, rv, nil))
		if err != nil {
			t.Fatal(err)
		}
		p.put(&Batch{Changes: []*Change{c}, ResourceVersion: fmt.Sprint(rv)})
		s.wake(false)
		p.wait(t)
	}
	put("updated", "")
	put("deleted", "")
	put("again", "")
	s.SetTold(3)
	pos.set(func(p *Position) { p.Cursor = 3 }) // all acknowledged
	put("updated", "")
	put("updated", "")
	put("deleted", "")
	del("deleted")
	put("again", "")
	del("again")
	put("again", "another")
	put("again", "another")
	put("comes", "")
	put("comes", "")
	put("goes", "")
	del("goes")
	s.SetTold(100)
	for range 12 {
		put("tick", "")
	}
	st := handlerState1(t, s)
	if st.Parked != 6 || st.Collapsed < 9 || st.Mark < 15 {
		t.Fatalf("%+v", st)
	}
	want := map[string]string{"a/updated": "Updated 1 5", "a/deleted": "Deleted", "a/again": "Deleted,Added - 11", "a/comes": "Added - 13", "a/goes": "Deleted"}
	page, err := h.Parked(nil, 100, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range page.Keys {
		got := ""
		for j, e := range page.Entries[i] {
			if j > 0 {
				got += ","
			}
			got += string(e.Type)
			if e.Type == cache.Deleted {
				continue
			}
			old := "-"
			if prev, _ := e.Previous(); prev != nil {
				old = prev.(interface{ GetResourceVersion() string }).GetResourceVersion()
			}
			obj, err := e.Object()
			if err != nil {
				t.Fatal(err)
			}
			got += " " + old + " " + obj.(interface{ GetResourceVersion() string }).GetResourceVersion()
		}
		if key != "a/tick" && got != want[key] {
			t.Errorf("%s: %s, want %s", key, got, want[key])
		}
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("not parked: %v", want)
	}
	if kept := journalFrom(t, s, 1); len(kept) > 0 && kept[0].Seq < 15 {
		t.Errorf("the journal begins at %d", kept[0].Seq)
	}

	pos.set(func(p *Position) {
		p.Cursor = s.State().Seq
		p.Settled = map[string]uint64{}
		for i, key := range page.Keys {
			if key != "a/goes" {
				p.Settled[key] = page.Last[i] + 100
			}
		}
	})
	h.Changed()
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if st := handlerState1(t, s); st.Parked != 1 {
		t.Errorf("%+v", st)
	}
	if err := s.RemoveHandler("test"); err != nil {
		t.Fatal(err)
	}
}

// TestRemoveClaimedHandler: a registered handler can be removed, and its registration
// has no effect afterwards.
func TestRemoveClaimedHandler(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
	h, pos := claimHandler(t, s, "test")
	p.add(t, s, configMap("a", "one", 1, nil))
	<-p.done
	if err := s.RemoveHandler("test"); err != nil {
		t.Fatal(err)
	}
	again, _ := claimHandler(t, s, "test")
	pos.set(func(p *Position) { p.Cursor, p.Replaying = 77, false })
	h.Changed()
	if err := h.Release(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ClaimHandler("test", pos, func(Position, uint64, bool) {}); !errors.Is(err, ErrClaimed) {
		t.Errorf("the first one's end let a third one in: %v", err)
	}
	if st := handlerState1(t, s); !st.Replaying || st.Mark != 1 {
		t.Errorf("%+v", st)
	}
	if err := again.Release(); err != nil {
		t.Fatal(err)
	}
}

// TestClaimHandlerAtOnce: if several callers register one name at the same time, one
// succeeds, and the others get an error that says what to do.
func TestClaimHandlerAtOnce(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	errs := make(chan error)
	for range 8 {
		go func() {
			p := &testPosition{}
			_, err := s.ClaimHandler("test", p, p.load)
			errs <- err
		}()
	}
	claimed := 0
	for range 8 {
		switch err := <-errs; {
		case err == nil:
			claimed++
		case !errors.Is(err, ErrClaimed) || !strings.Contains(err.Error(), "ShutDownEventHandler"):
			t.Error(err)
		}
	}
	if claimed != 1 {
		t.Errorf("%d of them have it", claimed)
	}
}
