package informer

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore/codec"
)

// numberedCodec is a codec of the program's own.
type numberedCodec struct {
	codec.Codec
	id byte
}

func (c numberedCodec) ID() byte { return c.id }

// TestDurableAfterAnotherCodec: what a program whose codec cannot read the file has not told
// its durable handler is not acknowledged, also with ServeOutdated. The next life tells it,
// under the first codec or, after a list, under another one. The source is not damaged.
func TestDurableAfterAnotherCodec(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		own, err := codec.For(&corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex
		told := map[string]bool{}
		live := func(id byte, answer error) *life {
			l := w.live(Options{Codec: numberedCodec{own, id}, ServeOutdated: true})
			_, err := l.inf.AddDurableHandler("test", DurableHandlerFunc(func(_ context.Context, e Event) error {
				mu.Lock()
				defer mu.Unlock()
				told[e.Key] = true
				return answer
			}), DurableOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return l.run()
		}
		// end lets the life go on for a minute. It ends the life, and returns what was told.
		end := func(l *life) map[string]bool {
			after(time.Minute) // on the bubble's clock: client-go's backoffs pass, and commits
			if err := l.inf.store.Err(); err != nil {
				t.Errorf("damaged: %v", err)
			}
			l.end()
			mu.Lock()
			defer mu.Unlock()
			was := told
			told = map[string]bool{}
			return was
		}
		w.create("changes")
		end(live(200, nil).synced())
		l := live(200, ErrAckLater).synced()
		w.update("changes", "2")
		w.create("comes")
		end(l)

		w.sim.Stall(true)
		if was := end(live(201, nil)); len(was) > 0 {
			t.Errorf("told what cannot be read: %v", was)
		}
		for _, id := range []byte{200, 202} {
			w.sim.Stall(id == 200) // otherwise it lists
			if was := end(live(id, ErrAckLater)); !was["default/changes"] || !was["default/comes"] {
				t.Errorf("codec %d: told only %v", id, was)
			}
		}
	})
}
