package boltstore

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
)

// pendingTest is a source that was listed empty, and a handler that was told its Reset.
type pendingTest struct {
	t     *testing.T
	db    *DB
	s     *Claimed
	p     *testProducer
	h     *Handler
	heard *heard
	rv    int
}

func newPendingTest(t *testing.T, o Options) *pendingTest {
	o.Window = time.Nanosecond
	if o.FlushInterval == 0 {
		o.FlushInterval = time.Hour
	}
	f := &pendingTest{t: t, rv: 10}
	f.db = openTest(t, testPath(t), o)
	f.s = claimTest(t, f.db, Claim{})
	relist(t, f.s, "10", RelistOptions{}, nil, 10)
	f.p = &testProducer{}
	f.s.Feed.Attach(f.p)
	f.h, f.heard = claimHandler(t, f.s, "test")
	tookReset(t, f.h)
	return f
}

// put commits an object with that uid.
func (f *pendingTest) put(key, uid string) {
	f.t.Helper()
	f.event(cache.Updated, key, uid)
}

func (f *pendingTest) del(key, uid string) {
	f.t.Helper()
	f.event(cache.Deleted, key, uid)
}

func (f *pendingTest) event(typ cache.DeltaType, key, uid string) {
	f.t.Helper()
	f.rv++
	c, err := f.s.Feed.Prepare(typ, withUID(key, uid, f.rv))
	must(f.t, err)
	f.p.put(&Batch{Changes: []*Change{c}, ResourceVersion: fmt.Sprint(f.rv)})
	f.s.wake(true)
	f.p.wait(f.t)
}

func withUID(key, uid string, rv int) *corev1.ConfigMap {
	o := configMap("a", key, rv, map[string]string{"words": fmt.Sprint(rv)})
	o.UID = types.UID(uid)
	return o
}

// read is what the handler is to be told of a key: the deleted UIDs, and the present one.
func (f *pendingTest) read(key string) (told string, r Receipt) {
	f.t.Helper()
	p, ok, err := f.h.Read("a/" + key)
	must(f.t, err)
	if !ok {
		return "nothing", r
	}
	var all []string
	for i, g := range p.Deleted {
		all = append(all, "-"+uidOf(g.Object))
		if g.Seq > p.Seq || i > 0 && g.Seq <= p.Deleted[i-1].Seq {
			f.t.Errorf("%+v", p)
		}
	}
	if p.Object != nil {
		all = append(all, uidOf(p.Object))
	}
	return strings.Join(all, " "), p.Receipt
}

func uidOf(o any) string {
	if d, unknown := o.(cache.DeletedFinalStateUnknown); unknown {
		return "?" + uidOf(d.Obj)
	}
	return string(o.(*corev1.ConfigMap).UID)
}

func (f *pendingTest) is(key, want string) (r Receipt) {
	f.t.Helper()
	got, r := f.read(key)
	if got != want {
		f.t.Errorf("%s: %q is pending, not %q", key, got, want)
	}
	return r
}

// TestAcknowledge: an acknowledgement takes out what the handler was told, and no later
// change. It counts at once, and is in the file with the next commit.
func TestAcknowledge(t *testing.T) {
	f := newPendingTest(t, Options{})
	f.put("x", "one")
	first := f.is("x", "one")
	f.del("x", "one")
	f.put("x", "two")
	f.is("x", "-one two")
	f.h.Acknowledge("a/x", first)
	f.is("x", "-one two") // they came after it
	second := f.is("x", "-one two")
	f.put("x", "two")
	f.del("x", "two")
	f.h.Acknowledge("a/x", second)
	last := f.is("x", "-two")
	f.h.Acknowledge("a/x", first) // late
	f.is("x", "-two")
	f.h.Acknowledge("a/x", last)
	f.h.Acknowledge("a/x", second)
	f.is("x", "nothing")
	if st := handlerState1(t, f.s); f.h.Length() != 1 || st.Pending != 1 || st.Deleted != 2 {
		t.Errorf("in the file: %+v", st)
	}
	f.put("y", "y")
	if st := handlerState1(t, f.s); st.Pending != 1 || st.Deleted != 0 {
		t.Errorf("in the file: %+v", st)
	}
	f.h.Acknowledge("a/x", last) // twice
	f.h.Acknowledge("a/none", last)
	f.put("x", "three")
	f.is("x", "three")
	f.is("y", "y")
	if got := f.heard.take(); !slices.Equal(got, []string{"a/x", "a/y"}) {
		t.Errorf("heard of %q", got)
	}
	if got := keysOf(t, f.h); !slices.Equal(got, []string{"a/x", "a/y"}) {
		t.Errorf("%q are pending", got)
	}
}

// TestDeletesOfAKey: a replaced object counts as deleted, also in a list, which does not know
// its final state. Of many deletes of one key the first and the last ones are kept.
func TestDeletesOfAKey(t *testing.T) {
	f := newPendingTest(t, Options{})
	f.put("x", "0")
	f.h.Acknowledge("a/x", f.is("x", "0"))
	f.put("x", "1")
	f.is("x", "-?0 1")
	f.del("x", "1")
	relist(t, f.s, "1000", RelistOptions{}, []runtime.Object{withUID("x", "2", 1000)}, 10)
	relist(t, f.s, "1001", RelistOptions{}, nil, 10)
	f.rv = 1001
	f.is("x", "-?0 -1 -?2")
	for i := 3; i < 20; i++ {
		f.put("x", fmt.Sprint(i))
		f.del("x", fmt.Sprint(i))
	}
	r := f.is("x", "-?0 -13 -14 -15 -16 -17 -18 -19")
	f.put("x", "20")
	f.is("x", "-?0 -13 -14 -15 -16 -17 -18 -19 20")
	f.h.Acknowledge("a/x", r)
	f.is("x", "20")
}

// TestSinceAndSeq: a key says since when it has been pending, and the commit that it is read
// from.
func TestSinceAndSeq(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: 1000 * time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	h, _ := claimHandler(t, s, "test")
	handled(t, h)
	var at []time.Time
	for i := range 3 {
		clk.Step(time.Hour)
		p.add(t, s, configMap("a", "x", i+1, nil))
		p.stepped(t, clk)
		is, ok, err := h.Read("a/x")
		if err != nil || !ok || is.Seq != uint64(i)+1 || is.Initial != (i < 2) {
			t.Fatalf("%+v %t %v", is, ok, err)
		}
		at = append(at, is.Since)
		if i == 1 {
			h.Acknowledge("a/x", is.Receipt)
		}
	}
	if at[0] != at[1] || at[2].Sub(at[1]) < time.Hour {
		t.Errorf("pending since %v", at)
	}
}

// TestSinceAFirstList: an object of a first list, which has no journal, has been pending since
// it became so, whatever changes later.
func TestSinceAFirstList(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: 1000 * time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	relist(t, s, "10", RelistOptions{}, []runtime.Object{configMap("a", "x", 1, nil)}, 10)
	p := &testProducer{}
	s.Feed.Attach(p)
	h, _ := claimHandler(t, s, "test")
	tookReset(t, h)
	clk.Step(time.Hour)
	p.add(t, s, configMap("a", "x", 11, nil))
	p.stepped(t, clk)
	if is, ok, err := h.Read("a/x"); err != nil || !ok || clk.Since(is.Since) < time.Hour {
		t.Errorf("%+v %t %v", is, ok, err)
	}
}

// TestAcknowledgementsRideAlong: an acknowledgement needs no commit of its own while changes
// come, is lost with a commit that fails, and is written by a later one. Idle, it is written
// after FlushInterval.
func TestAcknowledgementsRideAlong(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour, Clock: clk})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	h, _ := claimHandler(t, s, "test")
	handled(t, h)
	p.add(t, s, configMap("a", "one", 1, nil))
	p.stepped(t, clk)
	before := transactions(t, db)
	acknowledge := func(key string) {
		t.Helper()
		is, ok, err := h.Read(key)
		if err != nil || !ok {
			t.Fatal(ok, err)
		}
		h.Acknowledge(key, is.Receipt)
	}
	acknowledge("a/one")
	if n := transactions(t, db) - before; n != 0 {
		t.Fatalf("%d transactions for an acknowledgement", n)
	}
	p.add(t, s, configMap("a", "two", 2, nil))
	p.stepped(t, clk)
	if n := transactions(t, db) - before; n != 1 {
		t.Fatalf("%d transactions for a change", n)
	}
	if st := handlerState1(t, s); st.Pending != 1 {
		t.Fatalf("%+v", st)
	}
	// The commit fails: neither the change nor the acknowledgement is in the file.
	acknowledge("a/two")
	var fails atomic.Bool
	fails.Store(true)
	db.h.setHook(func(tx *bolt.Tx) error {
		if fails.Load() {
			return failLate(tx, db)
		}
		return nil
	})
	p.add(t, s, configMap("a", "three", 3, nil))
	deadline := time.Now().Add(time.Minute)
	for db.Err() == nil {
		clk.Step(time.Millisecond)
		if time.Now().After(deadline) {
			t.Fatal("the commit did not fail")
		}
	}
	if st := handlerState1(t, s); st.Pending != 1 || s.State().Seq != 2 || h.Length() != 1 {
		t.Fatalf("%+v at %d, length %d", st, s.State().Seq, h.Length())
	}
	fails.Store(false)
	for s.State().Seq < 3 {
		clk.Step(time.Second)
		if time.Now().After(deadline) {
			t.Fatal("the commit was not retried")
		}
	}
	p.stepped(t, clk)
	if keys := keysOf(t, h); !slices.Equal(keys, []string{"a/three"}) {
		t.Fatalf("%q are pending", keys)
	}
	acknowledge("a/three")
	for handlerState1(t, s).Pending > 0 {
		clk.Step(time.Hour)
		if time.Now().After(deadline) {
			t.Fatal("an idle file was not flushed")
		}
	}
}
