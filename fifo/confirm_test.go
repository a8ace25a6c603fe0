package fifo

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/devicetest"
)

// TestConfirmedWhen: an answer confirms the state at the time of its question, an event
// at the time of its arrival; the proof of an event's confirmation dates from the
// question before.
func TestConfirmedWhen(t *testing.T) {
	now := time.Unix(1000, 0)
	q, _ := newQueue(t, boltstore.Options{}, settings{now: func() time.Time { return now }})
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	is := func(when string, confirmed, proven time.Time) {
		t.Helper()
		if !q.Confirmed().Equal(confirmed) || !q.Proven().Equal(proven) {
			t.Errorf("%s: confirmed %v, want %v; proven %v, want %v", when, q.Confirmed().Unix(), confirmed.Unix(),
				q.Proven().Unix(), proven.Unix())
		}
	}
	if err := q.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	now = at(10)
	q.Confirm("5", at(2))
	is("a slow answer", at(2), at(2))
	now = at(20)
	if err := q.Add(object("y", 6)); err != nil {
		t.Fatal(err)
	}
	is("an event", at(20), at(2))
	q.Doubt()
	now = at(30)
	q.Confirm("8", at(29))
	is("behind", at(20), at(2))
	now = at(40)
	if err := q.Add(object("z", 7)); err != nil {
		t.Fatal(err)
	}
	is("still behind", at(20), at(2))
	now = at(50)
	if err := q.Bookmark("9"); err != nil {
		t.Fatal(err)
	}
	is("reached", at(50), at(29))
}

// TestBookmarkBehindEvent: a bookmark that confirms while an earlier event still waits to
// be popped counts as soon as that is popped.
func TestBookmarkBehindEvent(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{FlushInterval: time.Hour}, settings{})
	q.Confirm("2", time.Now())
	if err := q.Add(object("x", 1)); err != nil {
		t.Fatal(err)
	}
	if err := q.Flush(t.Context()); err != nil || s.State().Seq != 1 {
		t.Fatal(err)
	}
	if err := q.Bookmark("2"); err != nil {
		t.Fatal(err)
	}
	if q.HasSynced() {
		t.Error("synced before the event was popped")
	}
	_, err := q.Pop(func(any, bool) error {
		if err := q.Bookmark("3"); err != nil || q.HasSynced() {
			t.Errorf("synced while the event is processed: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	select { // at once, or once the bookmarks are in the file if the Flush took them along
	case <-q.Done():
	case <-time.After(time.Minute):
		t.Error("not synced behind the event")
	}
}

// TestUnconfirmed: nothing counts as confirmed once the contents have been removed.
func TestUnconfirmed(t *testing.T) {
	now := time.Unix(1000, 0)
	q, _ := newQueue(t, boltstore.Options{}, settings{now: func() time.Time { return now }})
	q.Confirm("5", now)
	if err := q.Bookmark("5"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if err := q.Bookmark("5"); err != nil || !q.Confirmed().Equal(now) {
		t.Errorf("confirmed at %v: %v", q.Confirmed(), err)
	}
	q.Unconfirm(true)
	if !q.Confirmed().IsZero() || !q.Proven().IsZero() || q.Reached() || q.AcceptedVersion() != "" {
		t.Error("confirmed after it was set aside")
	}
}

// TestBookmarkGoesBack: a bookmark of an earlier version than the accepted one changes
// nothing. A watch from there would bring objects again that are gone.
func TestBookmarkGoesBack(t *testing.T) {
	q, s := newQueue(t, boltstore.Options{FlushInterval: time.Hour}, settings{})
	if err := errors.Join(q.Add(object("x", 20)), q.Bookmark("7"), q.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	if is, stored := q.AcceptedVersion(), s.State().ResourceVersion; is != "20" || stored != "20" {
		t.Errorf("the watch goes on from %s, the next life's from %s", is, stored)
	}
	if err := errors.Join(q.Bookmark("21"), q.Flush(t.Context())); err != nil || s.State().ResourceVersion != "21" {
		t.Error(s.State().ResourceVersion, err)
	}
}

// TestOpaqueTarget: versions that cannot be compared confirm if they are equal.
func TestOpaqueTarget(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, settings{})
	if err := q.Bookmark("a"); err != nil {
		t.Fatal(err)
	}
	q.Confirm("b", time.Now())
	for _, rv := range []string{"c", "a"} {
		if err := q.Bookmark(rv); err != nil || q.Reached() || q.ReachedBy("d") {
			t.Errorf("reached by %s: %v", rv, err)
		}
	}
	if err := q.Bookmark("b"); err != nil || !q.Reached() {
		t.Errorf("not reached: %v", err)
	}
}

// TestSyncInAWindow: the sync does not wait for the window to pass, however much
// the watch has brought by then.
func TestSyncInAWindow(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{Window: time.Hour}, settings{})
	if err := q.Add(object("first", 1)); err != nil { // it begins a window
		t.Fatal(err)
	}
	pop(t, q)
	q.Confirm("9", time.Now())
	for i := 2; i < 10; i++ {
		if err := q.Add(object("o", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := 2; i < 10; i++ {
		pop(t, q)
	}
	select {
	case <-q.Done():
	case <-time.After(time.Minute):
		t.Fatal("everything that was to be popped has been, and it has not synced")
	}
}

// TestSynced: the server's confirmation counts, but only when everything up to it has
// been popped.
func TestSynced(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{}, settings{})
	if err := q.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	if q.HasSynced() {
		t.Fatal("synced before the server said anything")
	}
	q.Confirm("7", time.Now())
	if err := q.Add(object("y", 6)); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	if q.HasSynced() || q.Reached() || !q.Confirmed().IsZero() {
		t.Fatal("synced behind the server's version")
	}
	if err := q.Add(object("z", 8)); err != nil {
		t.Fatal(err)
	}
	if !q.Reached() || q.HasSynced() {
		t.Fatal("synced before it was popped")
	}
	pop(t, q)
	if !q.HasSynced() || q.Confirmed().IsZero() {
		t.Fatal("not synced")
	}
	q.Confirm("20", time.Now())
	if q.Reached() {
		t.Fatal("behind, and reached")
	}
	if err := q.Bookmark("21"); err != nil {
		t.Fatal(err)
	}
	if !q.Reached() || q.AcceptedVersion() != "21" {
		t.Fatal("a bookmark does not count")
	}
}

// TestRelistConfirmsItsMoment: a list shows the state at its request, not at its last
// page.
func TestRelistConfirmsItsMoment(t *testing.T) {
	var now atomic.Int64
	now.Store(1_000)
	q, s := newQueue(t, boltstore.Options{}, settings{now: func() time.Time { return time.Unix(now.Load(), 0) }})
	r, err := q.BeginRelist(t.Context(), boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now.Add(600)
	if err := errors.Join(r.Page([]runtime.Object{object("a", 5)}), r.Commit(t.Context(), "5", "5", "5")); err != nil {
		t.Fatal(err)
	}
	if got := q.Confirmed().Unix(); got != 1_000 {
		t.Errorf("confirmed at %d", got)
	}
	if got := s.State().Confirmed.Unix(); got != 1_000 {
		t.Errorf("the file says confirmed at %d", got)
	}
}

// sleeper is a device that has slept, which its monotonic time does not show.
type sleeper struct {
	*devicetest.Device
	slept atomic.Int64
}

// Slept implements boltstore.DeviceClock.
func (s *sleeper) Slept() time.Duration { return time.Duration(s.slept.Load()) }

// TestSleepDuringARelist: a list during which the machine slept shows a state from before.
func TestSleepDuringARelist(t *testing.T) {
	c := &sleeper{Device: devicetest.New(time.Now())}
	q, _ := newQueue(t, boltstore.Options{Clock: c}, settings{})
	r, err := q.BeginRelist(t.Context(), boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.slept.Add(int64(3 * time.Hour))
	if err := errors.Join(r.Page([]runtime.Object{object("a", 5)}), r.Commit(t.Context(), "5", "5", "5")); err != nil {
		t.Fatal(err)
	}
	if age, ok := q.Age(c.Now()); !ok || age < 3*time.Hour {
		t.Errorf("%s old, known %v", age, ok)
	}
}
