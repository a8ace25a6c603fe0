package informer

import (
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/tuning"
)

// TestRemoveDurableOnAFullDisk: a durable handler is removed if the file takes the removal,
// whatever became of its last acknowledgements. If the file does not take it, the error says so, the
// handler is not called any more, and the removal can be tried again.
func TestRemoveDurableOnAFullDisk(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var failing atomic.Int64 // so many transactions
		tuning.SetFile(&w.options, tuning.File{Op: func(op, _ string) error {
			if op == "transaction" && failing.Add(-1) >= 0 {
				return syscall.ENOSPC
			}
			return nil
		}})
		w.create("a")
		names := func(l *life) (names []string) {
			hs, err := l.inf.store.Handlers()
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range hs {
				names = append(names, h.Name)
			}
			return names
		}
		for _, running := range []bool{false, true} {
			r := newLedger(t)
			l := w.durably(DurableOptions{}, r)
			if running {
				l.run().synced().acknowledged()
				r.expect("reset", "initial a")
			}
			failing.Store(1 << 30)
			if err := l.inf.RemoveDurableHandler("test"); err == nil || len(names(l)) != 1 {
				t.Errorf("running %v: on a full disk: %v, handlers %q", running, err, names(l))
			}
			failing.Store(0)
			if _, err := l.inf.AddDurableHandler("test", r, DurableOptions{}); err != nil {
				t.Fatal(err)
			}
			failing.Store(1 << 30)
			after(2 * time.Hour) // the use of the name has to be noted again
			failing.Store(1)
			if err := l.inf.RemoveDurableHandler("test"); !running && err != nil {
				t.Errorf("one failed commit: %v", err)
			}
			failing.Store(0)
			if err := l.inf.RemoveDurableHandler("test"); err != nil || len(names(l)) != 0 {
				t.Errorf("running %v: %v, handlers %q", running, err, names(l))
			}
			if running {
				l.end()
			} else if err := l.db.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}
