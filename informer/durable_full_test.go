package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// TestDiskFullAtALaterStart: objects change while the program is down, and the disk takes only
// a few transactions of its next start. Once there is room again, in this life or the next,
// plain and durable handlers are told everything, deletes too, and readers see it.
func TestDiskFullAtALaterStart(t *testing.T) {
	for steps := range int64(8) {
		for _, ends := range []bool{false, true} {
			t.Run(fmt.Sprint(steps, " transactions, ends ", ends), func(t *testing.T) {
				bubble(t, func(t *testing.T, w *world) {
					left := w.room()
					for _, name := range []string{"a", "b", "c"} {
						w.create(name)
					}
					plain, one := newRecorder(t), newLedger(t)
					start := func() (l *life, cancel func()) {
						for {
							l = w.live(Options{}, plain)
							_, err := l.inf.AddDurableHandler("one", one, DurableOptions{})
							if err == nil {
								break
							}
							if !errors.Is(err, syscall.ENOSPC) || left.Load() > 0 {
								t.Fatal(err)
							}
							_ = l.db.Close()    // says what the disk did not take
							left.Store(1 << 30) // such a program ends, and begins again with room
						}
						ctx, cancel := context.WithCancel(context.Background())
						go func() { defer close(l.done); l.inf.RunWithContext(ctx) }()
						return l, cancel
					}
					l, cancel := start()
					l.synced().acknowledged()
					after(time.Minute)
					cancel()
					<-l.done
					if err := l.db.Close(); err != nil {
						t.Fatal(err)
					}

					w.update("a", "1")
					w.delete("b")
					w.create("d")
					left.Store(steps)
					l, cancel = start()
					after(time.Minute)
					w.delete("c")
					after(time.Minute)
					if full := left.Load() < 0; full != (l.db.Err() != nil) {
						t.Errorf("full: %v, the file's health: %v", full, l.db.Err())
					}
					if ends {
						cancel()
						<-l.done
						_ = l.db.Close() // says what the disk did not take
						left.Store(1 << 30)
						l, cancel = start()
					}
					left.Store(1 << 30)
					l.synced().equal().acknowledged()
					synctest.Wait() // a plain handler may be told later
					for name, r := range map[string]*recorder{"plain": plain, "durable": one.recorder} {
						if names := r.names(); !slices.Equal(names, []string{"a", "d"}) {
							r.mu.Lock()
							t.Errorf("the %s handler believes in %q: %q", name, names, r.log)
							r.mu.Unlock()
						}
					}
					cancel()
					<-l.done
					if err := l.db.Close(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}
