package fifo

import (
	"context"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
)

// TestConfirmedWhen: an answer confirms as of when it was asked for, an event as
// of when it came; what an event confirms is proven as of the question before.
func TestConfirmedWhen(t *testing.T) {
	now := time.Unix(1000, 0)
	j, _ := newJournal(t, boltstore.Options{}, Options{Now: func() time.Time { return now }})
	at := func(s int64) time.Time { return time.Unix(1000+s, 0) }
	is := func(when string, confirmed, proven time.Time) {
		t.Helper()
		if !j.Confirmed().Equal(confirmed) || !j.Proven().Equal(proven) {
			t.Errorf("%s: confirmed %v, want %v; proven %v, want %v", when, j.Confirmed().Unix(), confirmed.Unix(), j.Proven().Unix(), proven.Unix())
		}
	}
	if err := j.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	now = at(10)
	j.Confirm("5", at(2))
	is("a slow answer", at(2), at(2))
	now = at(20)
	if err := j.Add(object("y", 6)); err != nil {
		t.Fatal(err)
	}
	is("an event", at(20), at(2))
	j.Doubt()
	now = at(30)
	j.Confirm("8", at(29))
	is("behind", at(20), at(2))
	now = at(40)
	if err := j.Add(object("z", 7)); err != nil {
		t.Fatal(err)
	}
	is("still behind", at(20), at(2))
	now = at(50)
	if err := j.Bookmark("9"); err != nil {
		t.Fatal(err)
	}
	is("reached", at(50), at(29))
}

// TestBookmarkBehindEvent: a bookmark that confirms while an event before it
// still waits to be popped counts as soon as that has been.
func TestBookmarkBehindEvent(t *testing.T) {
	j, s := newJournal(t, boltstore.Options{FlushInterval: time.Hour, BookmarkInterval: time.Hour}, Options{})
	j.Confirm("2", time.Now())
	if err := j.Add(object("x", 1)); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(t.Context()); err != nil || s.State().Seq != 1 {
		t.Fatal(err)
	}
	if err := j.Bookmark("2"); err != nil {
		t.Fatal(err)
	}
	if j.HasSynced() {
		t.Error("synced before the event was popped")
	}
	_, err := j.Pop(func(any, bool) error {
		if err := j.Bookmark("3"); err != nil || j.HasSynced() {
			t.Errorf("synced while the event is processed: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	select { // at once, or once the bookmarks are in the file if the Flush took them along
	case <-j.Done():
	case <-time.After(time.Minute):
		t.Error("not synced behind the event")
	}
}

// TestOwnBookmark: a bookmark that was announced as our own confirms nothing.
func TestOwnBookmark(t *testing.T) {
	now := time.Unix(1000, 0)
	j, _ := newJournal(t, boltstore.Options{}, Options{Now: func() time.Time { return now }})
	j.Confirm("5", now)
	if err := j.Bookmark("5"); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	j.ExpectBookmark("5")
	if err := j.Bookmark("5"); err != nil || !j.Confirmed().Equal(time.Unix(1000, 0)) {
		t.Errorf("confirmed at %v: %v", j.Confirmed(), err)
	}
	if err := j.Bookmark("5"); err != nil || !j.Confirmed().Equal(now) { // the server's
		t.Errorf("confirmed at %v: %v", j.Confirmed(), err)
	}
	j.Unconfirm(true)
	if !j.Confirmed().IsZero() || !j.Proven().IsZero() || j.Reached() || j.Accepted() != "" {
		t.Error("confirmed after it was set aside")
	}
}

// TestWaitForOpaqueVersion: one that is followed by the next at once has come.
func TestWaitForOpaqueVersion(t *testing.T) {
	j, _ := newJournal(t, boltstore.Options{}, Options{})
	done := make(chan error, 1)
	go func() { done <- j.WaitVersion(t.Context(), "b") }()
	for deadline := time.Now().Add(time.Minute); ; {
		j.mu.Lock()
		n := j.waiting
		if n > 0 { // it looks again once it has the lock
			j.advance("b", time.Now())
			j.advance("c", time.Now())
		}
		j.mu.Unlock()
		if n > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits")
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("it waits for what has come")
	}
}

// TestOpaqueTarget: versions that cannot be compared confirm if they are equal.
func TestOpaqueTarget(t *testing.T) {
	j, _ := newJournal(t, boltstore.Options{}, Options{})
	if err := j.Bookmark("a"); err != nil {
		t.Fatal(err)
	}
	j.Confirm("b", time.Now())
	for _, rv := range []string{"c", "a"} {
		if err := j.Bookmark(rv); err != nil || j.Reached() || j.ReachedBy("d") {
			t.Errorf("reached by %s: %v", rv, err)
		}
	}
	if err := j.Bookmark("b"); err != nil || !j.Reached() {
		t.Errorf("not reached: %v", err)
	}
}

// TestFlushWritesBookmarks: an orderly end leaves the newest version in the
// file, so that a quiet wake has nothing to wait for.
func TestFlushWritesBookmarks(t *testing.T) {
	j, s := newJournal(t, boltstore.Options{FlushInterval: time.Hour}, Options{})
	if err := j.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	if err := j.Bookmark("9"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := j.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if rv := s.LastStoreSyncResourceVersion(); rv != "9" {
		t.Fatal(rv)
	}
	if err := j.Bookmark("10"); err != nil {
		t.Fatal(err)
	}
	if err := j.Flush(ctx); err != nil || s.LastStoreSyncResourceVersion() != "10" {
		t.Fatal(err, s.LastStoreSyncResourceVersion())
	}
}
