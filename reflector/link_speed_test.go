package reflector

import (
	"testing"
	"time"
)

// TestLinkIsNear: a link is near if it connects and answers at once, and fast if the
// first page comes at once. A new connection may lead elsewhere.
func TestLinkIsNear(t *testing.T) {
	r := newLinkSpeed()
	expect := func(near, known bool) {
		t.Helper()
		if n, k, _ := r.near(); n != near || k != known {
			t.Errorf("near %v, known %v", n, k)
		}
	}
	expect(false, false)
	r.connected(time.Millisecond)
	expect(false, false)
	r.answered(time.Second)
	expect(false, false)
	r.answered(20 * time.Millisecond)
	expect(true, false)
	_, _, judged := r.near()
	r.paged(1000, 40*time.Millisecond)
	expect(true, false)
	r.paged(probeBytes, 10*time.Millisecond)
	expect(true, true)
	<-judged
	r.connected(30 * time.Millisecond)
	expect(false, false)
	r.connected(time.Millisecond)
	r.answered(time.Millisecond)
	r.paged(probeBytes, time.Second)
	expect(false, true)
	r.paged(probeBytes, time.Millisecond)
	expect(true, true)
	for s, most := range []int64{farBytes, unknownBytes, nearBytes} {
		if !r.reserve(share(s), most) || r.reserve(share(s), 1) {
			t.Errorf("share %d: lists may take more, or less, than they should", s)
		}
	}
	if r.done(10); !r.reserve(shareNear, 10) {
		t.Error("what a list has given back is not there")
	}
}

// TestFirstConnectionShowsTheLink: whichever request makes the connection shows how near
// the server is. In a first life that is a question about the cluster, before any list.
func TestFirstConnectionShowsTheLink(t *testing.T) {
	for _, first := range []func(f *fixture) error{
		func(f *fixture) error { _, err := f.requests.clusterUID(t.Context()); return err },
		func(f *fixture) error { _, _, err := f.requests.form(t.Context(), false); return err },
		func(f *fixture) error { _, err := f.requests.version(t.Context()); return err },
	} {
		f := newFixture(t, 1)
		r := transportOf(t, f.client.Transport).speed
		r.now = func() time.Time { return time.Unix(1e9, 0) } // all at once
		if near, _, _ := r.near(); near {
			t.Error("a link looks near that nobody has tried")
		}
		if err := first(f); err != nil {
			t.Fatal(err)
		}
		if near, _, _ := r.near(); !near {
			t.Error("the link does not look near")
		}
	}
}

// TestLinkIsQuick: a list confirms for callers that wait if the link connects and answers at
// once. If another client has made the connection, an answer within the time to connect
// shows the same. A page that comes slowly shows that it is not.
func TestLinkIsQuick(t *testing.T) {
	for _, tc := range []struct {
		name string
		show func(*linkSpeed)
		want bool
	}{
		{"nothing is known", func(*linkSpeed) {}, false},
		{"connected by another client", func(r *linkSpeed) { r.answered(nearConnect) }, true},
		{"the same, far", func(r *linkSpeed) { r.answered(nearConnect + 1) }, false},
		{"connected", func(r *linkSpeed) { r.connected(nearConnect); r.answered(nearAnswer) }, true},
		{"no answer yet", func(r *linkSpeed) { r.answered(0); r.connected(nearConnect) }, false},
		{"far", func(r *linkSpeed) { r.connected(nearConnect + 1); r.answered(0) }, false},
		{"slow", func(r *linkSpeed) { r.answered(0); r.paged(probeBytes, time.Second) }, false},
		{"fast", func(r *linkSpeed) { r.answered(0); r.paged(probeBytes, time.Millisecond) }, true},
	} {
		r := newLinkSpeed()
		if tc.show(r); r.quick() != tc.want {
			t.Errorf("%s: quick is %v", tc.name, !tc.want)
		}
	}
}

// TestLinkAdmits: the bytes that lists may bring before a watch is open depend on the
// link's behaviour so far.
func TestLinkAdmits(t *testing.T) {
	admitted := func(r *linkSpeed, each int64) (n int) {
		for n < 100 && r.admits(each) {
			n++
		}
		return n
	}
	for _, tc := range []struct {
		name string
		show func(*linkSpeed)
		each int64
		n    int
	}{
		{"not connected, small", func(*linkSpeed) {}, fewBytes, farBytes / fewBytes},
		{"far", func(r *linkSpeed) { r.connected(30 * time.Millisecond); r.answered(time.Millisecond) }, fewBytes, farBytes / fewBytes},
		{"looks near", func(r *linkSpeed) { r.connected(time.Millisecond); r.answered(time.Millisecond) }, fewBytes, unknownBytes / fewBytes},
		{"near and slow", func(r *linkSpeed) {
			r.connected(time.Millisecond)
			r.answered(time.Millisecond)
			r.paged(probeBytes, time.Second)
		}, fewBytes, farBytes / fewBytes},
		{"near and fast", func(r *linkSpeed) {
			r.connected(time.Millisecond)
			r.answered(time.Millisecond)
			r.paged(probeBytes, time.Millisecond)
		}, fewBytes, 100},
	} {
		r := newLinkSpeed()
		tc.show(r)
		if n := admitted(r, tc.each); n != tc.n {
			t.Errorf("%s: %d lists are admitted, not %d", tc.name, n, tc.n)
		}
	}
}

// TestSlowPageIsForgiven: what a page has shown about a slow link does not hold for ever, since a
// busy server looks the same.
func TestSlowPageIsForgiven(t *testing.T) {
	now := time.Unix(1e9, 0)
	r := newLinkSpeed()
	r.now = func() time.Time { return now }
	r.connected(0)
	r.answered(0)
	r.paged(probeBytes, time.Second)
	if r.quick() {
		t.Error("a slow page has shown nothing")
	}
	now = now.Add(2 * postponed)
	if _, known, _ := r.near(); known || !r.quick() {
		t.Error("the page still counts")
	}
}
