package informer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// TestDurableEventHandler: a durable handler that is added by AddEventHandler is told its
// unacknowledged changes; client-go's informer treats it as a plain one.
func TestDurableEventHandler(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	for n, want := range []string{"a b", "b"} {
		h := &namedHandler{accept: func(key string) bool { return key == "default/a" }, told: map[string]bool{}}
		l := w.live(Options{}, h).run().synced()
		eventually(t, fmt.Sprint("life ", n, " is told ", want), func() bool { return h.keys() == want })
		l.end()
		if handlers := handlersOf(t, w.path); len(handlers) != 1 || handlers[0].Name != "named" {
			t.Errorf("handlers %v", handlers)
		}
	}
	h := &namedHandler{told: map[string]bool{}}
	stock := cache.NewSharedIndexInformer(typedMaps(w.config(), ""), &corev1.ConfigMap{}, 0, byNamespace)
	if _, err := stock.AddEventHandler(h); err != nil {
		t.Fatal(err)
	}
	start(t, stock)
	eventually(t, "told as a plain one", func() bool { return h.keys() == "a b" })
}

type namedHandler struct {
	accept func(key string) bool
	mu     sync.Mutex
	told   map[string]bool
}

func (h *namedHandler) DurableName() string { return "named" }

func (h *namedHandler) HandleEvent(_ context.Context, e Event) error {
	if e.Reset {
		return nil
	}
	h.tell(e.Key)
	if !h.accept(e.Key) {
		return errors.New("not yet")
	}
	return nil
}

func (h *namedHandler) tell(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told[key] = true
}

func (h *namedHandler) keys() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, name := range []string{"a", "b"} {
		if h.told["default/"+name] {
			all = append(all, name)
		}
	}
	return strings.Join(all, " ")
}

func (h *namedHandler) OnAdd(o any, _ bool) { h.tell("default/" + o.(metav1.Object).GetName()) }

func (h *namedHandler) OnUpdate(_, _ any) {}

func (h *namedHandler) OnDelete(any) {}
