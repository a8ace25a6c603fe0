package informer

import (
	"context"
	"errors"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
)

// turns makes the calls of a durable handler itself, step by step, while the handler's only
// worker is held up.
type turns struct {
	t *testing.T
	w *world
	d *durableHandler
}

// byTurns calls fn with a handler that has a pending key default/x, which is due.
func byTurns(t *testing.T, fn func(*turns)) {
	t.Helper()
	bubble(t, func(t *testing.T, w *world) {
		held := make(chan struct{})
		w.create("held")
		l := w.durably(DurableOptions{}, DurableHandlerFunc(func(_ context.Context, e Event) error {
			if e.Key == "default/held" {
				<-held
			}
			return nil
		})).run()
		defer l.end()
		defer close(held)
		u := &turns{t: t, w: w}
		for d := range l.inf.durables {
			u.d = d
		}
		after(0)
		u.change(func() { w.create("x") })
		fn(u)
	})
}

// change changes the server, and waits until the handler has heard of it.
func (u *turns) change(fn func()) {
	fn()
	after(0)
	eventually(u.t, "heard of", func() bool { return u.d.queue.Len() > 0 })
}

// begin begins the next call.
func (u *turns) begin() *durableCall {
	u.t.Helper()
	eventually(u.t, "due", func() bool { return u.d.queue.Len() > 0 })
	key, _ := u.d.queue.Get()
	c := u.d.begin(key)
	u.d.queue.Done(key)
	if c == nil || key != "default/x" {
		u.t.Fatal("no call begins of", key)
	}
	return c
}

// told reads what a call tells. The handler returns ErrAckLater.
func (u *turns) told(c *durableCall) Event {
	u.t.Helper()
	e, err := u.d.read(c)
	if err != nil {
		u.t.Fatal(err)
	}
	u.d.settle(c, ErrAckLater)
	return e
}

// again makes the key due, as a commit does that the last call has read before it was heard of.
func (u *turns) again() {
	u.d.changed(boltstore.HandlerChange{Keys: []boltstore.PendingKey{{Key: "default/x"}}})
}

func (u *turns) inHand() bool {
	u.d.mu.Lock()
	defer u.d.mu.Unlock()
	return u.d.keys["default/x"] != nil
}

var errRefused = errors.New("refused")

// TestAnswerBeforeTheNextRead: an event is answered while the next call of its key, which would
// tell the same, has begun and not read yet. Ack ends the key. After Nack the call tells it
// again. Without an answer the call tells nothing, and the answer may come later.
func TestAnswerBeforeTheNextRead(t *testing.T) {
	for name, answer := range map[string]func(Event){
		"Ack": Event.Ack, "Nack": func(e Event) { e.Nack(errRefused) }, "later": func(Event) {},
	} {
		t.Run(name, func(t *testing.T) {
			byTurns(t, func(u *turns) {
				first := u.told(u.begin())
				u.again()
				c := u.begin()
				answer(first)
				e, err := u.d.read(c)
				switch name {
				case "Ack":
					if u.d.settle(c, err); !errors.Is(err, errNotPending) || u.inHand() {
						t.Error("not ended:", err)
					}
				case "Nack":
					if err != nil || e.Object == nil || e.Attempt != 2 || e.Seq != first.Seq {
						t.Errorf("told %+v: %v", e, err)
					}
				case "later":
					if u.d.settle(c, err); !errors.Is(err, errKnown) || !u.inHand() {
						t.Error("told the same again:", err)
					}
					first.Nack(errRefused)
					after(u.d.limiter.When("default/x"))
					if e := u.told(u.begin()); e.Attempt != 2 {
						t.Errorf("told %+v", e)
					}
				}
			})
		})
	}
}

// TestLateAckBeforeTheNextRead: if the key has changed, the next call tells the change although
// the event before is acknowledged as it begins. Its failure counts.
func TestLateAckBeforeTheNextRead(t *testing.T) {
	byTurns(t, func(u *turns) {
		first := u.told(u.begin())
		u.change(func() { u.w.update("x", "2") })
		c := u.begin()
		first.Ack()
		e, err := u.d.read(c)
		if err != nil || e.Seq <= first.Seq {
			t.Fatalf("told %+v: %v", e, err)
		}
		u.d.settle(c, errRefused)
		if !u.inHand() || u.d.lag().Failing != 1 {
			t.Error("a failure is forgotten")
		}
		after(u.d.limiter.When("default/x"))
		if again := u.told(u.begin()); again.Seq != e.Seq {
			t.Errorf("told %+v", again)
		}
	})
}

// TestListBeforeAKeyIsLeft: a key that could not be read is read again although the list that
// has made it readable ended before that was noted.
func TestListBeforeAKeyIsLeft(t *testing.T) {
	byTurns(t, func(u *turns) {
		c := u.begin()
		u.d.changed(boltstore.HandlerChange{Readable: true})
		after(0)
		u.d.settle(c, boltstore.ErrNotYet)
		after(0)
		if e := u.told(u.begin()); e.Object == nil {
			t.Errorf("told %+v", e)
		}
	})
}
