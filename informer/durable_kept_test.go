package informer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/informer/internal/durable"
)

// TestKeptGoesOn: if an event of a key is kept for the next life, later events of the key
// are still told, however many, and take no more memory. The next life is told the kept
// event, and at last the object's present state.
func TestKeptGoesOn(t *testing.T) {
	for name, o := range map[string]DurableOptions{"": {}, "little memory": {maxPending: 2}} {
		t.Run(name, func(t *testing.T) { keptGoesOn(t, o) })
	}
}

func keptGoesOn(t *testing.T, o DurableOptions) {
	w := newWorld(t)
	w.options.FlushInterval = 5 * time.Millisecond
	w.create("a", "kept")
	var mu sync.Mutex
	var told []string
	life := func() *life {
		l := w.live(Options{})
		if _, err := l.inf.AddDurableHandler("kept", DurableHandlerFunc(func(_ context.Context, e Event) error {
			data := e.Object.(*corev1.ConfigMap).Data["data"]
			mu.Lock()
			defer mu.Unlock()
			told = append(told, data)
			if data == "kept" {
				e.Keep()
				return ErrAckLater
			}
			return nil
		}), o); err != nil {
			t.Fatal(err)
		}
		return l.run().synced()
	}
	last := func(want string) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(told) > 0 && told[len(told)-1] == want
		}
	}
	l := life()
	eventually(t, "the first is told", last("kept"))
	for i := range 3 * durable.AheadOfAck {
		w.update("a", fmt.Sprint(i))
		eventually(t, fmt.Sprint("update ", i, " is told"), last(fmt.Sprint(i)))
		if n := l.only().Inspect().Tasks["default/a"]; n > 4 {
			t.Fatalf("%d events are in memory after update %d", n, i)
		}
	}
	l.end()
	told = nil
	l = life()
	eventually(t, "the next life is told the last state", last(fmt.Sprint(3*durable.AheadOfAck-1)))
	l.end()
}
