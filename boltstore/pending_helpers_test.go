package boltstore

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// heard is what a durable handler's function was called with.
type heard struct {
	mu       sync.Mutex
	readable int
	resets   int
	keys     []string
}

func (h *heard) changed(c HandlerChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Readable {
		h.readable++
	}
	if c.Reset {
		h.resets++
	}
	for _, k := range c.Keys {
		h.keys = append(h.keys, k.Key)
	}
}

// take returns the keys that have come since the last call, sorted, each once.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	all := slices.Compact(slices.Sorted(slices.Values(h.keys)))
	h.keys = nil
	return all
}

func (h *heard) wasReadable() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readable
}

func (h *heard) wasReset() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resets
}

func claimHandler(t testing.TB, s *Claimed, name string) (*Handler, *heard) {
	t.Helper()
	heard := &heard{}
	h, err := s.Delivery.Claim(name, heard.changed)
	if err != nil {
		t.Fatal(err)
	}
	return h, heard
}

func resetOwed(h *Handler) bool {
	_, owed := h.ResetOwed()
	return owed
}

// tookReset acknowledges the handler's Reset and lets all keys become pending, as far as the
// source was listed.
func tookReset(t testing.TB, h *Handler) {
	t.Helper()
	if r, owed := h.ResetOwed(); owed {
		h.Acknowledge("", r)
	}
	for range 1000 {
		must(t, h.s.writeMarks())
		if !h.Behind() || !h.s.metaNow().listed() {
			return
		}
	}
	t.Fatalf("handler %s stays behind", h.name)
}

// handled acknowledges all that is pending for the handler, and writes that.
func handled(t testing.TB, h *Handler) {
	t.Helper()
	tookReset(t, h)
	for _, p := range pendingOf(t, h) {
		h.Acknowledge(p.Key, p.Receipt)
	}
	must(t, h.s.writeMarks())
	if n := h.Length(); n > 0 {
		t.Fatalf("%d keys are pending", n)
	}
}

// keysOf reads the keys that are pending in the file, in pages.
func keysOf(t testing.TB, h *Handler) (all []string) {
	t.Helper()
	for from := []byte(nil); ; {
		keys, next, err := h.Keys(from, 700)
		if err != nil || len(keys) > 700 {
			t.Fatal(len(keys), err)
		}
		for _, k := range keys {
			all = append(all, k.Key)
		}
		if from = next; from == nil {
			slices.Sort(all)
			return all
		}
	}
}

// pendingOf reads all that is pending for the handler, in the order of the keys.
func pendingOf(t testing.TB, h *Handler) (all []Pending) {
	t.Helper()
	for _, key := range keysOf(t, h) {
		p, ok, err := h.Read(key)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			all = append(all, p)
		}
	}
	return all
}

// failLate makes a transaction fail at its end, after all that it writes.
func failLate(tx *bolt.Tx, db *DB) error {
	src, ok := db.h.source(tx, configMaps.ID())
	if !ok {
		return errors.New("the disk fails")
	}
	if err := src.Root.Delete(layout.KeyMeta); err != nil {
		return err
	}
	_, err := src.Root.CreateBucket(layout.KeyMeta) // putMeta fails
	return err
}

// stepped waits for a commit that waits for the clock.
func (p *testProducer) stepped(t *testing.T, clk *testingclock.FakeClock) {
	t.Helper()
	for deadline := time.After(time.Minute); ; {
		select {
		case <-p.done:
			return
		case <-deadline:
			t.Fatal("not committed")
		case <-time.After(time.Millisecond):
			clk.Step(time.Millisecond)
		}
	}
}
