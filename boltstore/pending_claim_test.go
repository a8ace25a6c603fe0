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
	testingclock "k8s.io/utils/clock/testing"
)

// TestMarksFailBeforeRelease: a failed commit of only marks is no loss once Release has
// written them.
func TestMarksFailBeforeRelease(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0)) // nothing is tried again by itself
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, FlushInterval: time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
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
	s.Delivery.SetTold(1)
	s.Feed.Flush()
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

// TestRemoveClaimedHandler: a registered handler can be removed, and its registration
// has no effect afterwards. The name begins anew with a Reset.
func TestRemoveClaimedHandler(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("a", "one", 1, nil))
	p.wait(t)
	h, _ := claimHandler(t, s, "test")
	tookReset(t, h)
	told := pendingOf(t, h)
	if len(told) != 1 {
		t.Fatalf("%+v", told)
	}
	must(t, s.Delivery.Remove("test"))
	again, heard := claimHandler(t, s, "test")
	if !resetOwed(again) {
		t.Error("the name goes on without a Reset")
	}
	tookReset(t, again)
	h.Acknowledge(told[0].Key, told[0].Receipt)
	h.Acknowledge("", told[0].Receipt)
	must(t, h.Release())
	if _, err := s.Delivery.Claim("test", heard.changed); !errors.Is(err, ErrClaimed) {
		t.Errorf("the first one's end let a third one in: %v", err)
	}
	if st := handlerState1(t, s); st.Pending != 1 || st.Reset {
		t.Errorf("%+v", st)
	}
	must(t, again.Release())
	must(t, s.Delivery.Remove("test"))
	if hs, err := s.Handlers(); err != nil || len(hs) > 0 {
		t.Errorf("%+v, %v", hs, err)
	}
	must(t, s.Delivery.Remove("test")) // it is gone
}

// TestClaimHandlerAtOnce: if several callers register one name at the same time, one
// succeeds, and the others get an error that says what to do.
func TestClaimHandlerAtOnce(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	errs := make(chan error)
	for range 8 {
		go func() {
			_, err := s.Delivery.Claim("test", func(HandlerChange) {})
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

// TestHandlersEndTogether: handlers that end at the same time share a transaction. The file
// has what each of them has acknowledged.
func TestHandlersEndTogether(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	var hs []*Handler
	for i := range 50 {
		h, _ := claimHandler(t, s, fmt.Sprint("h", i))
		hs = append(hs, h)
	}
	for _, h := range hs {
		tookReset(t, h)
	}
	for i := range 3 {
		p.add(t, s, configMap("a", fmt.Sprint(i), i+1, nil))
		p.wait(t)
	}
	for i, h := range hs {
		all := pendingOf(t, h)
		if len(all) != 3 {
			t.Fatalf("%+v", all)
		}
		for _, p := range all[:i%3+1] {
			h.Acknowledge(p.Key, p.Receipt)
		}
	}
	before := transactions(t, db)
	var wg sync.WaitGroup
	for _, h := range hs {
		wg.Go(func() {
			if err := h.Release(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := transactions(t, db) - before; n != 1 {
		t.Errorf("%d transactions", n)
	}
	all, err := s.Handlers()
	must(t, err)
	for _, st := range all {
		var i int
		fmt.Sscanf(st.Name, "h%d", &i)
		if st.Pending != uint64(2-i%3) {
			t.Errorf("%+v", st)
		}
	}
}
