package informer

import (
	"context"
	"errors"
	"testing"

	"k8s.io/client-go/tools/cache"

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
