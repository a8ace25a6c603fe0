package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestKeptRetold: if a key is told again from a kept event on, because a later one was
// refused, it is told without gaps: a delete is followed by Added, and Old is never newer
// than the last state told.
func TestKeptRetold(t *testing.T) {
	for name, o := range map[string]DurableOptions{"": {}, "little memory": {maxPending: 2}} {
		t.Run(name, func(t *testing.T) { keptRetold(t, o) })
	}
}

func keptRetold(t *testing.T, o DurableOptions) {
	w := newWorld(t)
	w.create("a", "0 kept")
	var mu sync.Mutex
	var told []string
	refuse := ""
	there := "" // by the changes told so far
	handle := func(_ context.Context, e Event) error {
		mu.Lock()
		defer mu.Unlock()
		obj := e.Object
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		data := obj.(*corev1.ConfigMap).Data["data"]
		line := fmt.Sprint(e.Type, " ", data)
		if old, ok := e.Old().(*corev1.ConfigMap); ok {
			line += " after " + old.Data["data"]
			if was := old.Data["data"]; was > there {
				t.Errorf("%s, when told of %q: %q", line, there, told)
			}
		}
		if e.Type == cache.Updated && there == "" {
			t.Errorf("%s, of an object that is gone: %q", line, told)
		}
		told = append(told, line)
		if there = data; e.Type == cache.Deleted {
			there = ""
		}
		switch data {
		case "0 kept":
			e.Keep()
			return ErrAckLater
		case refuse:
			refuse = ""
			return errors.New("refused")
		}
		return nil
	}
	tells := func(times int, deleted bool, data string) {
		t.Helper()
		eventually(t, fmt.Sprint(data, " told ", times, " times, deleted: ", deleted), func() bool {
			mu.Lock()
			defer mu.Unlock()
			n := 0
			for _, line := range told {
				typ, rest, _ := strings.Cut(line, " ")
				if strings.HasPrefix(rest, data) && (typ == string(cache.Deleted)) == deleted {
					n++
				}
			}
			return n >= times
		})
	}
	refused := func(data string) {
		t.Helper()
		mu.Lock()
		told, refuse = nil, data
		mu.Unlock()
		w.update("a", data)
		tells(2, false, data)
	}
	l := w.live(Options{})
	if _, err := l.inf.AddDurableHandler("kept", DurableHandlerFunc(handle), o); err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	tells(1, false, "0 kept")
	for _, data := range []string{"1", "2", "3"} {
		w.update("a", data)
		tells(1, false, data)
	}
	refused("4")
	w.delete("a")
	tells(1, true, "4")
	for _, data := range []string{"5", "6", "7"} {
		if data == "5" {
			w.create("a", data)
		} else {
			w.update("a", data)
		}
		tells(1, false, data)
	}
	refused("8")
	l.end()
}
