package informer

import (
	"context"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubewake/kubewake/internal/tuning"
)

// room returns how many transactions the disk still takes, at first any number.
func (w *world) room() *atomic.Int64 {
	left := &atomic.Int64{}
	left.Store(1 << 30)
	tuning.SetFile(&w.options, tuning.File{Op: func(op, _ string) error {
		if op == "transaction" && left.Add(-1) < 0 {
			return syscall.ENOSPC
		}
		return nil
	}})
	return left
}

// TestDiskFullAfterEachStep: a life takes a durable handler out, puts another in under
// another name, and is told changes. After any number of its transactions the disk takes no
// more until it ends. The next life tells every handler what it missed.
func TestDiskFullAfterEachStep(t *testing.T) {
	for steps := range int64(10) {
		bubble(t, func(t *testing.T, w *world) {
			left := w.room()
			for _, name := range []string{"a", "b", "d", "e"} {
				w.create(name)
			}
			plain, one, two := newRecorder(t), newLedger(t), newLedger(t)
			l := w.live(Options{}, plain)
			if _, err := l.inf.AddDurableHandler("one", one, DurableOptions{}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			go func() { defer close(l.done); l.inf.RunWithContext(ctx) }()
			l.synced().acknowledged()
			after(time.Minute)
			left.Store(steps)
			w.update("a", "1")
			w.delete("b")
			w.create("c")
			after(time.Second)
			removed := l.inf.RemoveDurableHandler("one") == nil
			_, err := l.inf.AddDurableHandler("two", two, DurableOptions{})
			added := err == nil
			after(time.Second)
			w.delete("d")
			w.update("e", "1")
			after(time.Minute)
			cancel()
			<-l.done
			_ = l.db.Close() // says what the disk did not take
			used := steps - max(left.Load(), 0)
			left.Store(1 << 30)

			w.delete("c")
			l = w.live(Options{}, plain)
			for name, r := range map[string]*ledger{"one": one, "two": two} {
				if name == "one" && removed || name == "two" && !added {
					clear(r.there)
				}
				if _, err := l.inf.AddDurableHandler(name, r, DurableOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			l.run().synced().equal().acknowledged()
			synctest.Wait() // a plain handler may be told later
			for name, r := range map[string]*recorder{"plain": plain, "one": one.recorder, "two": two.recorder} {
				r.mu.Lock()
				bad := r.there["a"] == nil || r.there["a"].Data["data"] != "1" || r.there["e"] == nil ||
					r.there["e"].Data["data"] != "1"
				log := slices.Clone(r.log)
				r.mu.Unlock()
				if names := r.names(); bad || !slices.Equal(names, []string{"a", "e"}) {
					t.Errorf("after %d transactions (removed %v, added %v) %s believes in %q: %q", used, removed,
						added, name, names, log)
				}
			}
			l.end()
		})
	}
}
