package fifo

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestConfirmListed: a list that equals the file confirms as of the question, as long as
// it is the last one. It does not move the version, and an event that is still behind
// confirms nothing.
func TestConfirmListed(t *testing.T) {
	now := time.Unix(1000, 0)
	q, _ := newQueue(t, boltstore.Options{}, settings{now: func() time.Time { return now }})
	if err := q.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	listed := func(target string, asked time.Time) (confirmed, stands bool) {
		return q.ConfirmListed(Listed{Target: target, Asked: asked, At: "9", Stored: q.Stored()})
	}
	if ok, stands := listed("", now); ok || stands {
		t.Error("nothing was asked")
	}
	q.Confirm("9", now)
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, l := range []Listed{{"9", now.Add(-time.Second), "9", q.Stored()}, {"8", now, "9", q.Stored()}} {
		if ok, stands := q.ConfirmListed(l); ok || stands || !q.Confirmed().IsZero() {
			t.Error("it was another question")
		}
	}
	if ok, stands := q.ConfirmListed(Listed{"9", now, "9", q.Stored() - 1}); ok || !stands {
		t.Error("something was stored since the file was compared")
	}
	asked := now
	now = now.Add(time.Second)
	if ok, _ := listed("9", asked); !ok || !q.Confirmed().Equal(asked) || !q.Proven().Equal(asked) || q.Reached() ||
		q.AcceptedVersion() != "5" {
		t.Errorf("confirmed %v, reached %v, at %s", q.Confirmed(), q.Reached(), q.AcceptedVersion())
	}
	if q.HasSynced() {
		t.Error("synced, and what was stored has not been popped")
	}
	if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if !q.HasSynced() {
		t.Error("not synced")
	}
	now = now.Add(time.Second)
	if err := q.Add(object("y", 7)); err != nil {
		t.Fatal(err)
	}
	if !q.Confirmed().Equal(asked) {
		t.Error("an event that is behind has confirmed")
	}
	if shown := q.ShownVersion(); shown != "9" || q.AcceptedVersion() != "7" {
		t.Errorf("the server has shown version %q", shown)
	}
	if err := q.Bookmark("9"); err != nil {
		t.Fatal(err)
	}
	if !q.Confirmed().Equal(now) {
		t.Error("the bookmark has not confirmed")
	}
	if ok, _ := listed("9", asked); !ok || !q.Confirmed().Equal(now) {
		t.Error("a list has taken back what a bookmark has confirmed")
	}
	q.Doubt()
	if ok, stands := listed("9", asked); ok || stands {
		t.Error("the link has broken")
	}
}

// TestNotListedWhileStoring: changes that are accepted but not in the file were not
// compared with the list.
func TestNotListedWhileStoring(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{Window: time.Hour}, settings{})
	q.Confirm("9", time.Unix(1000, 0))
	if err := q.Add(object("x", 5)); err != nil { // it may be committed at once, or after the window
		t.Fatal(err)
	}
	stored := q.Stored()
	if err := q.Add(object("y", 6)); err != nil {
		t.Fatal(err)
	}
	if ok, stands := q.ConfirmListed(Listed{"9", time.Unix(1000, 0), "9", stored}); ok || !stands {
		t.Error("confirmed while changes are on their way")
	}
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ok, _ := q.ConfirmListed(Listed{"9", time.Unix(1000, 0), "9", q.Stored()}); !ok {
		t.Error("not confirmed, and nothing is on its way")
	}
}

// TestNotListedOnTheWay: changes that the committer has taken are not in the file yet. A
// closed queue confirms nothing.
func TestNotListedOnTheWay(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{FlushInterval: time.Hour}, settings{})
	committer := q.wake
	q.wake = func(bool) {} // the test is the committer
	q.Confirm("9", time.Unix(1000, 0))
	if err := q.Add(object("x", 5)); err != nil {
		t.Fatal(err)
	}
	stored := q.Stored()
	if b, _ := q.Take(1<<20, false); b == nil || len(b.Changes) != 1 {
		t.Fatalf("taken: %+v", b)
	}
	if ok, stands := q.ConfirmListed(Listed{"9", time.Unix(1000, 0), "9", stored}); ok || !stands {
		t.Error("confirmed while a change is on its way into the file")
	}
	q.Committed(nil)
	q.wake = committer
	q.Close()
	if ok, stands := q.ConfirmListed(Listed{"9", time.Unix(1000, 0), "9", q.Stored()}); ok || stands ||
		!q.Confirmed().IsZero() {
		t.Error("confirmed after the end")
	}
}

// held returns a queue that a list at version 9 has confirmed, with x, which came and
// went before, held.
func held(t *testing.T, most int) (*Queue, *boltstore.Claimed) {
	t.Helper()
	q, s := newQueue(t, boltstore.Options{FlushInterval: time.Hour}, settings{most: most})
	if err := q.Replace([]any{object("a", 3)}, "5"); err != nil {
		t.Fatal(err)
	}
	pop(t, q)
	q.Doubt()
	q.Confirm("9", time.Unix(1000, 0))
	if ok, _ := q.ConfirmListed(Listed{"9", time.Unix(1000, 0), "9", q.Stored()}); !ok || !q.HasSynced() {
		t.Fatal("not confirmed")
	}
	if err := q.Add(object("x", 6)); err != nil {
		t.Fatal(err)
	}
	return q, s
}

// sees says whether readers see x when all changes that may be committed are in the file.
func sees(t *testing.T, q *Queue, s *boltstore.Claimed) bool {
	t.Helper()
	if err := q.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, there, err := s.GetByKey("ns/x")
	if err != nil {
		t.Fatal(err)
	}
	return there
}

// TestHeld: the changes from before a confirming list go into the file in one commit,
// together with those that reach the list, even if a commit otherwise takes fewer.
func TestHeld(t *testing.T) {
	q, s := held(t, 0)
	big := object("x", 7)
	big.Data = map[string]string{"": fmt.Sprintf("%0100000d", 0)}
	for _, err := range []error{q.Update(big), q.Bookmark("7")} {
		if err != nil || sees(t, q, s) {
			t.Errorf("readers see what is held: %v", err)
		}
	}
	if b, more := q.Take(1, true); b != nil || more {
		t.Errorf("the committer takes %+v", b)
	}
	// The file is as it will be at 9: no reader waits for the held changes.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, err := range []error{q.WaitConfirmed(ctx, time.Unix(1000, 0), true), q.WaitVersion(ctx, "7")} {
		if err != nil {
			t.Error(err)
		}
	}
	if rv := s.State().ResourceVersion; rv != "5" || q.AcceptedVersion() != "7" {
		t.Errorf("the file is at %s, accepted is %s", rv, q.AcceptedVersion())
	}
	if err := q.Delete(object("x", 8)); err != nil {
		t.Fatal(err)
	}
	before := s.State().Seq
	if err := q.Bookmark("9"); err != nil || sees(t, q, s) {
		t.Errorf("x is there: %v", err)
	}
	if st := s.State(); st.ResourceVersion != "9" || st.Seq != before+3 {
		t.Errorf("at %s, %d entries", st.ResourceVersion, st.Seq-before)
	}
	for _, typ := range []cache.DeltaType{cache.Added, cache.Updated, cache.Deleted} {
		if d := pop(t, q); d.Type != typ {
			t.Errorf("popped %v", d.Type)
		}
	}
	if err := q.Add(object("x", 10)); err != nil || !sees(t, q, s) {
		t.Errorf("what came after the list is held: %v", err)
	}
}

// TestHeldInOneCommit: the committer takes the held changes in one piece.
func TestHeldInOneCommit(t *testing.T) {
	q, _ := held(t, 0)
	q.wake = func(bool) {} // the test is the committer
	for rv := 7; rv < 20; rv++ {
		if err := q.Update(object("x", rv)); err != nil {
			t.Fatal(err)
		}
	}
	b, more := q.Take(1, false)
	if b == nil || len(b.Changes) != 4 || b.ResourceVersion != "9" || !more {
		t.Fatalf("taken: %+v, more: %v", b, more)
	}
	if b, _ := q.Take(1, false); b == nil || len(b.Changes) != 1 {
		t.Fatalf("taken afterwards: %+v", b)
	}
}

// TestDropHeld: held changes whose watch has ended come again, as if they had never come.
func TestDropHeld(t *testing.T) {
	q, s := held(t, 0)
	flash := object("flash", 7)
	for range 2 {
		if err := q.Delete(flash); err != nil { // of an object that the file never had
			t.Fatal(err)
		}
		q.DropHeld()
		if rv := q.AcceptedVersion(); rv != "5" || sees(t, q, s) {
			t.Errorf("the next watch begins at %s", rv)
		}
	}
	if err := q.WaitConfirmed(t.Context(), time.Unix(1000, 0), true); err != nil {
		t.Error(err)
	}
	for _, err := range []error{q.Bookmark("6"), q.Delete(flash)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	q.DropHeld()
	if rv := q.AcceptedVersion(); rv != "6" {
		t.Errorf("the next watch begins at %s, after a bookmark", rv)
	}
	if err := q.Flush(t.Context()); err != nil || s.State().ResourceVersion != "6" {
		t.Errorf("the bookmark is not in the file: %v", err)
	}
	for _, err := range []error{q.Delete(flash), q.Bookmark("9")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if d := pop(t, q); d.Type != cache.Deleted {
		t.Errorf("popped %v", d.Type)
	}
	q.DropHeld()
	if rv := q.AcceptedVersion(); rv != "9" || q.Stored() == 0 {
		t.Errorf("at %s: nothing was held", rv)
	}
}

// TestHeldFailure: while an event that cannot be stored is held, the file does not ask
// for a new read, which would end the watch that the hold waits for. Afterwards it does.
func TestHeldFailure(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint("dropped ", drop), func(t *testing.T) {
			q, s := held(t, 0)
			q.transform = func(any) (any, error) { return nil, errors.New("no") }
			if err := q.Update(object("x", 7)); err == nil {
				t.Fatal("it can be stored")
			}
			select {
			case <-q.Unstored():
			default:
			}
			if n, err := q.Failed(); n != 1 || err != nil {
				t.Errorf("%d have failed, %v", n, err)
			}
			if drop {
				q.DropHeld()
				if n, err := q.Failed(); n != 1 || err != nil {
					t.Errorf("%d have failed, %v", n, err)
				}
				return
			}
			if err := q.Bookmark("9"); err != nil {
				t.Fatal(err)
			}
			select {
			case <-q.Unstored():
			default:
				t.Error("nobody is told")
			}
			if err := q.Flush(t.Context()); err != nil || s.Feed.UnstoredObjects() != 1 {
				t.Errorf("%d unstored, %v", s.Feed.UnstoredObjects(), err)
			}
			if _, err := q.Failed(); err == nil {
				t.Error("nothing has failed")
			}
		})
	}
}

// TestRelistEndsHold: a relist shows the held objects, or that they are gone.
func TestRelistEndsHold(t *testing.T) {
	q, s := held(t, 0)
	if err := q.Replace([]any{object("a", 3)}, "12"); err != nil || sees(t, q, s) {
		t.Fatalf("x is there: %v", err)
	}
	if err := q.Add(object("x", 13)); err != nil || !sees(t, q, s) {
		t.Errorf("what comes after a relist is held: %v", err)
	}
}

// TestMoreIsHeldThanFits: the queue stays bounded, and goes on.
func TestMoreIsHeldThanFits(t *testing.T) {
	q, s := held(t, 1)
	if err := q.Update(object("x", 7)); err != nil || !sees(t, q, s) {
		t.Errorf("what is held blocks the queue: %v", err)
	}
}

// TestHeldUntilTheLatestList: the later of two lists decides how long changes are held.
func TestHeldUntilTheLatestList(t *testing.T) {
	q, s := held(t, 0)
	asked := time.Unix(1000, 0)
	for _, at := range []string{"12", "11"} {
		asked = asked.Add(time.Second)
		q.Doubt()
		q.Confirm("9", asked)
		if ok, _ := q.ConfirmListed(Listed{"9", asked, at, q.Stored()}); !ok {
			t.Fatal("not confirmed")
		}
	}
	if err := q.Update(object("x", 11)); err != nil || sees(t, q, s) {
		t.Errorf("what came before the later list is not held: %v", err)
	}
	if err := q.Update(object("x", 12)); err != nil || !sees(t, q, s) {
		t.Errorf("what has reached both lists is held: %v", err)
	}
}

// TestWaitBesideHeld: while changes are held a caller waits for those before them.
func TestWaitBesideHeld(t *testing.T) {
	q, _ := newQueue(t, boltstore.Options{FlushInterval: time.Hour}, settings{})
	if err := q.Replace([]any{object("a", 3)}, "5"); err != nil {
		t.Fatal(err)
	}
	q.Doubt()
	q.Confirm("9", time.Unix(1000, 0))
	if ok, _ := q.ConfirmListed(Listed{"9", time.Unix(1000, 0), "9", q.Stored()}); !ok || q.HasSynced() {
		t.Fatal("not confirmed, or synced before it was popped")
	}
	if err := q.Add(object("x", 6)); err != nil {
		t.Fatal(err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	waits := func() error { return q.WaitConfirmed(over, time.Unix(1000, 0), true) }
	if waits() == nil {
		t.Error("it does not wait for what was not popped")
	}
	pop(t, q)
	if err := waits(); err != nil || !q.HasSynced() {
		t.Errorf("it waits for what is held: %v", err)
	}
}

// TestDropHeldForgets: dropped changes take no room, and reach nothing.
func TestDropHeldForgets(t *testing.T) {
	q, s := held(t, 0)
	asked := time.Unix(1001, 0)
	q.Doubt()
	q.Confirm("9", asked)
	if ok, _ := q.ConfirmListed(Listed{"9", asked, "12", q.Stored()}); !ok {
		t.Fatal("not confirmed")
	}
	if err := q.Update(object("x", 10)); err != nil || !q.Reached() || sees(t, q, s) {
		t.Fatalf("reached %v, %v", q.Reached(), err)
	}
	q.DropHeld()
	if q.Reached() || q.batch.bytes != 0 {
		t.Errorf("reached %v with what was dropped, which takes %d bytes", q.Reached(), q.batch.bytes)
	}
	q.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := q.AwaitStored(ctx, q.Stored(), "z"); !errors.Is(err, ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}
