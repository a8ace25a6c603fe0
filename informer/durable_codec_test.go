package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// partialCodec cannot read one object.
type partialCodec struct{ numberedCodec }

func (c partialCodec) Decode(data []byte) (runtime.Object, error) {
	obj, err := c.Codec.Decode(data)
	if o, ok := obj.(*corev1.ConfigMap); ok && o.Name == "unreadable" {
		return nil, errors.New("unreadable")
	}
	return obj, err
}

// TestUnreadableObject: an object that the codec cannot read does not keep others from being
// told that could not be read until the changes of a large list were in the set.
func TestUnreadableObject(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		own, err := codec.For(&corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		const n = 600
		large := func(do func(name string, data ...string), version string) {
			for i := range n {
				do(fmt.Sprint("x", i), strings.Repeat(version, 20_000))
			}
		}
		w.create("unreadable")
		l := w.live(Options{Codec: partialCodec{numberedCodec{own, 200}}})
		var mu sync.Mutex
		told := map[string]string{}
		h := DurableHandlerFunc(func(_ context.Context, e Event) error {
			mu.Lock()
			defer mu.Unlock()
			if o, ok := e.Object.(*corev1.ConfigMap); ok {
				for _, v := range o.Data {
					told[o.Name] = v[:1]
				}
			}
			return nil
		})
		if _, err := l.inf.AddDurableHandler("test", h, DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		large(w.create, "1")
		l.run().synced()
		after(time.Minute)
		w.sim.Stall(true)
		large(w.update, "2")
		w.sim.Compact()
		w.sim.DropConnections()
		w.sim.Stall(false)
		after(10 * time.Minute)
		l.end()
		for i := range n {
			if v := told[fmt.Sprint("x", i)]; v != "2" {
				t.Fatalf("x%d: told %q", i, v)
			}
		}
	})
}
