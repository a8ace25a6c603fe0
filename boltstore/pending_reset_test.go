package boltstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestResetIsFilled: after the Reset of a new handler all objects become pending, some with
// each commit, without further changes. What changes meanwhile is told in its present state.
func TestResetIsFilled(t *testing.T) {
	const n = 10_000
	f := newPendingTest(t, Options{Durability: DurabilityProcess})
	var objs []runtime.Object
	for i := range n {
		objs = append(objs, withUID(fmt.Sprintf("%05d", i), fmt.Sprint(i), i+100))
	}
	relist(t, f.s, "20000", RelistOptions{}, objs, 5000)
	f.rv = 20000
	h, heard := claimHandler(t, f.s, "new")
	if r, owed := h.ResetOwed(); !owed || !h.Behind() || h.Length() != n || len(keysOf(t, h)) > 0 {
		t.Fatal(r, owed, h.Behind(), h.Length())
	}
	if _, ok, err := h.Read("a/00000"); ok || err != nil {
		t.Error("a key is pending before the Reset is acknowledged: ", ok, err)
	}
	f.put("00001", "1")
	f.del("00002", "2")
	if got := heard.take(); len(got) > 0 || len(keysOf(t, h)) > 0 {
		t.Errorf("heard of %q", got)
	}
	r, _ := h.ResetOwed()
	h.Acknowledge("", r)
	if _, owed := h.ResetOwed(); owed {
		t.Error("an acknowledged Reset is owed")
	}
	f.put("00000", "0")
	f.del("09998", "9998") // it is likely not pending yet
	f.put("09999", "other")
	f.put("10000", "10000")
	for deadline := time.Now().Add(time.Minute); h.Behind(); {
		if n := h.Length(); n < 1 || n > 10_000 {
			t.Fatalf("%d keys are pending", n)
		}
		if time.Now().After(deadline) {
			t.Fatal("the handler stays behind")
		}
	}
	keys, want := keysOf(t, h), uint64(n-1)
	if slices.Contains(keys, "a/09998") { // it was pending when it was deleted
		want = n
	}
	st, err := f.s.Handlers()
	if err != nil || len(keys) != int(want) || h.Length() != want || st[0].Pending != want || st[0].Behind ||
		st[0].Reset {
		t.Fatalf("%d keys are pending, length %d, %+v, %v", len(keys), h.Length(), st, err)
	}
	if got := heard.take(); !slices.Equal(got, keys) {
		t.Errorf("heard of %d keys, %d are pending", len(got), len(keys))
	}
	f.h = h
	f.is("00001", "1")
	f.is("00002", "nothing")
	for key, want := range map[string]string{"09998": "nothing", "09999": "other", "10000": "10000", "05000": "5000"} {
		got, _ := f.read(key)
		if got = got[strings.LastIndex(got, " ")+1:]; got != want && got != "-9998" { // its delete, if it was pending
			t.Errorf("%s: %q is pending, not %q", key, got, want)
		}
	}
	if p, _, err := h.Read("a/05000"); err != nil || !p.Initial {
		t.Errorf("%+v %v", p, err)
	}
	handled(t, h)
	f.put("05000", "5000")
	if p, _, err := h.Read("a/05000"); err != nil || p.Initial {
		t.Errorf("%+v %v", p, err)
	}
}

// TestResetBeforeTheFirstList: a handler of a source that was never listed is told its Reset at
// once, and the objects after the list.
func TestResetBeforeTheFirstList(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: time.Hour})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	h, heard := claimHandler(t, s, "test")
	tookReset(t, h)
	if !h.Behind() || h.Length() != 0 || resetOwed(h) || handlerState1(t, s).Reset {
		t.Error(h.Behind(), h.Length())
	}
	relist(t, s, "10", RelistOptions{}, []runtime.Object{withUID("x", "x", 1), withUID("y", "y", 2)}, 10)
	for deadline := time.Now().Add(time.Minute); h.Behind(); {
		if time.Now().After(deadline) {
			t.Fatal("the handler stays behind")
		}
	}
	if got := keysOf(t, h); !slices.Equal(got, []string{"a/x", "a/y"}) || !slices.Equal(heard.take(), got) {
		t.Errorf("%q are pending", got)
	}
}

// TestLargeListIsPending: the changes of a list that is larger than a commit are pending with
// the commits that store them, deletes last. What the handler acknowledges meanwhile loses none
// of them.
func TestLargeListIsPending(t *testing.T) {
	f := newPendingTest(t, Options{Durability: DurabilityProcess, JournalBytes: 1})
	long := strings.Repeat("long ", 200)
	object := func(i, uid, rv int) *corev1.ConfigMap {
		o := withUID(fmt.Sprintf("%05d", i), fmt.Sprint(uid), rv)
		o.Data["long"] = long + fmt.Sprint(rv)
		return o
	}
	const n = 4000
	var objs []runtime.Object
	for i := range n {
		objs = append(objs, object(i, i, i+100))
	}
	relist(t, f.s, "10000", RelistOptions{}, objs, 1000)
	for f.h.Behind() {
		must(t, f.s.writeMarks())
	}
	handled(t, f.h)
	f.heard.take()
	f.rv = 10000
	f.put("00007", "7")
	was := f.is("00007", "7")
	setMaxCommitBytes(f.db, 200_000)
	var again []runtime.Object
	for i := range n - 500 { // 500 are gone, 500 are others
		uid := i
		if i < 500 {
			uid = i + 100_000
		}
		again = append(again, object(i, uid, 20000+i))
	}
	r, err := f.s.Upstream.BeginRelist(RelistOptions{})
	must(t, err)
	for page := range slices.Chunk(again, 500) {
		must(t, r.Page(page))
	}
	f.is("00008", "-?8 100008")
	f.h.Acknowledge("a/00007", was)
	must(t, f.s.writeMarks())
	f.is("00007", "-?7 100007")
	if _, ok, err := f.h.Read("a/03999"); ok || err != nil {
		t.Error("a delete is told before the list has ended: ", ok, err)
	}
	readable := f.heard.wasReadable()
	_, err = r.Commit("30000", time.Now())
	must(t, err)
	f.rv = 30000
	keys := keysOf(t, f.h)
	if f.heard.wasReadable() != readable+1 {
		t.Errorf("keys became readable %d times", f.heard.wasReadable()-readable)
	}
	if told := f.heard.take(); len(keys) != n || f.h.Length() != n || len(told) != n {
		t.Errorf("%d keys are pending, length %d, %d were told", len(keys), f.h.Length(), len(told))
	}
	f.is("00600", "600")
	f.is("03999", "-?3999")
	handled(t, f.h)
}

// TestEmptyResets: another cluster's contents begin with a Reset. What the handler
// acknowledges of before has no effect.
func TestEmptyResets(t *testing.T) {
	f := newPendingTest(t, Options{})
	f.put("x", "x")
	f.put("y", "y")
	was, first := f.is("x", "x"), f.h.s.metaNow().Handlers["test"].Reset
	must(t, f.s.Upstream.Empty())
	if f.heard.wasReset() != 1 || !resetOwed(f.h) || !f.h.Behind() || f.h.Length() != 0 {
		t.Error(f.heard.wasReset(), f.h.Behind(), f.h.Length())
	}
	f.is("x", "nothing")
	f.h.Acknowledge("a/x", was)
	f.h.Acknowledge("", Receipt{reset: first})
	if !resetOwed(f.h) {
		t.Error("a receipt of an earlier Reset acknowledges this one")
	}
	tookReset(t, f.h)
	relist(t, f.s, "5", RelistOptions{}, []runtime.Object{withUID("x", "other", 3)}, 10)
	tookReset(t, f.h)
	f.h.Acknowledge("a/x", was)
	now := f.is("x", "other")
	f.h.Acknowledge("a/x", now)
	f.h.Acknowledge("a/x", was)
	must(t, f.s.writeMarks())
	f.is("x", "nothing")
	f.is("y", "nothing")

	must(t, f.s.Upstream.Empty())
	f.db.commit.busy.Lock() // no commit writes the acknowledgement
	r, _ := f.h.ResetOwed()
	f.h.Acknowledge("", r)
	must(t, f.s.Upstream.Empty())
	f.db.commit.busy.Unlock()
	must(t, f.s.writeMarks())
	if !resetOwed(f.h) || !handlerState1(t, f.s).Reset {
		t.Error("the acknowledgement of an earlier Reset is written as one of this one")
	}
}

// TestNotYet: a source whose objects cannot be read says so, and the list after that is heard
// of.
func TestNotYet(t *testing.T) {
	f := newPendingTest(t, Options{})
	f.put("x", "x")
	must(t, f.h.Release())
	f.s.Release()
	s, err := f.db.Claim(Claim{Source: configMaps, Example: &corev1.Secret{}})
	must(t, err)
	h, heard := claimHandler(t, s, "test")
	if _, ok, err := h.Read("a/x"); !errors.Is(err, ErrNotYet) || ok {
		t.Error(ok, err)
	}
	was := heard.wasReadable()
	relist(t, s, "5", RelistOptions{}, []runtime.Object{&corev1.Secret{ObjectMeta: withUID("x", "x", 3).ObjectMeta}},
		10)
	if heard.wasReadable() == was {
		t.Error("the handler did not hear that keys can be read")
	}
	tookReset(t, h)
	if p, ok, err := h.Read("a/x"); err != nil || !ok || p.Object.(*corev1.Secret).Name != "x" {
		t.Errorf("%+v %t %v", p, ok, err)
	}
}
