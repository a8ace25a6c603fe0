package informer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
)

// overHandler is a durable handler that may be over.
type overHandler struct {
	cache.ResourceEventHandlerFuncs
	DurableHandlerFunc
	done chan struct{}
}

func (*overHandler) DurableName() string            { return "test" }
func (h *overHandler) DurableDone() <-chan struct{} { return h.done }

// TestDurableHandlerIsOver: a handler takes the place of one of its name that is over,
// before the start and after it. It is told what that one has not acknowledged.
func TestDurableHandlerIsOver(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l := w.live(Options{})
	told := make(chan string, 10)
	handler := func(then error) *overHandler {
		return &overHandler{done: make(chan struct{}), DurableHandlerFunc: func(_ context.Context, e Event) error {
			if e.Reset {
				return nil
			}
			told <- e.Key
			return then
		}}
	}
	first, second, third := handler(nil), handler(ErrAckLater), handler(nil)
	add := func(h *overHandler, want error) {
		t.Helper()
		if _, err := l.inf.AddEventHandler(h); !errors.Is(err, want) {
			t.Fatalf("%v, not %v", err, want)
		}
	}
	add(first, nil)
	add(second, boltstore.ErrClaimed)
	close(first.done)
	add(second, nil)
	l.run().synced()
	if key := <-told; key != "default/a" {
		t.Fatal(key)
	}
	add(third, boltstore.ErrClaimed)
	close(second.done)
	add(third, nil)
	if key := <-told; key != "default/a" {
		t.Fatal(key)
	}
	l.end()
}

// TestOverHandlersAtOnce: handlers of one name that are over before they are added are added
// at once, and each takes the place of another.
func TestOverHandlersAtOnce(t *testing.T) {
	w := newWorld(t)
	l := w.live(Options{})
	over := make(chan struct{})
	close(over)
	var adding sync.WaitGroup
	for range 100 {
		adding.Go(func() {
			h := &overHandler{done: over, DurableHandlerFunc: func(context.Context, Event) error { return nil }}
			if _, err := l.inf.AddEventHandler(h); err != nil {
				t.Error(err)
			}
		})
	}
	adding.Wait()
	l.run().synced()
	l.end()
}

// TestOverHandlerDoesNotReturn: if a call of the handler that is over does not return, the
// error of the next one says so. Once it has returned, the name is free.
func TestOverHandlerDoesNotReturn(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	clk := testingclock.NewFakeClock(time.Now())
	l := w.live(Options{clock: clk})
	called, goOn := make(chan struct{}), make(chan struct{})
	over := &overHandler{done: make(chan struct{}), DurableHandlerFunc: func(context.Context, Event) error {
		close(called)
		<-goOn
		return nil
	}}
	next := &overHandler{DurableHandlerFunc: func(context.Context, Event) error { return nil }}
	if _, err := l.inf.AddEventHandler(over); err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	<-called
	close(over.done)
	added := make(chan error, 1)
	go func() {
		_, err := l.inf.AddEventHandler(next)
		added <- err
	}()
	var err error
	eventually(t, "the handler is refused", func() bool {
		clk.Step(overGrace)
		select {
		case err = <-added:
			return true
		default:
			return false
		}
	})
	if err == nil || errors.Is(err, boltstore.ErrClaimed) || !strings.Contains(err.Error(), "has not returned") {
		t.Error(err)
	}
	close(goOn)
	eventually(t, "the name is free", func() bool {
		_, err := l.inf.AddEventHandler(next)
		return err == nil
	})
	l.end()
}
