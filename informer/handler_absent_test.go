package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
)

// gate is a handler whose calls wait while it is shut.
type gate struct {
	*recorder
	shut   chan struct{} // closed: calls return
	called chan struct{} // one for each call
}

func newGate(r *recorder) *gate {
	return &gate{recorder: r, shut: make(chan struct{}), called: make(chan struct{}, 100)}
}

func (g *gate) wait() { g.called <- struct{}{}; <-g.shut }

func (g *gate) OnAdd(obj any, initial bool) { g.recorder.OnAdd(obj, initial) }

func (g *gate) OnUpdate(old, obj any) { g.wait(); g.recorder.OnUpdate(old, obj) }

func (g *gate) OnDelete(obj any) { g.wait(); g.recorder.OnDelete(obj) }

// add adds a handler and waits until it has been told all objects.
func (l *life) add(h cache.ResourceEventHandler) cache.ResourceEventHandlerRegistration {
	l.t.Helper()
	reg, err := l.inf.AddEventHandler(h)
	if err != nil {
		l.t.Fatal(err)
	}
	eventually(l.t, "the handler has been told", reg.HasSynced)
	return reg
}

func (l *life) remove(regs ...cache.ResourceEventHandlerRegistration) {
	l.t.Helper()
	for _, reg := range regs {
		if err := l.inf.RemoveEventHandler(reg); err != nil {
			l.t.Fatal(err)
		}
	}
}

// TestRemovedAtTheEnd: the next life tells the changes that handlers removed at the end
// of a life have not been told.
func TestRemovedAtTheEnd(t *testing.T) {
	for name, ends := range map[string]func(l *life, stalled *gate, reg, other cache.ResourceEventHandlerRegistration){
		"the stalled one first": func(l *life, g *gate, reg, other cache.ResourceEventHandlerRegistration) {
			l.remove(reg, other)
			close(g.shut)
		},
		"the stalled one last": func(l *life, g *gate, reg, other cache.ResourceEventHandlerRegistration) {
			l.remove(other, reg)
			close(g.shut)
		},
		"the stalled one alone": func(l *life, g *gate, reg, _ cache.ResourceEventHandlerRegistration) {
			l.remove(reg)
			close(g.shut)
		},
		"while the life ends": func(l *life, g *gate, reg, other cache.ResourceEventHandlerRegistration) {
			l.cancel()
			l.remove(reg, other)
			close(g.shut)
		},
		"after the end": func(l *life, g *gate, reg, other cache.ResourceEventHandlerRegistration) {
			l.cancel()
			close(g.shut)
			<-l.done
			l.remove(reg, other)
		},
		"and a delete before the end": func(l *life, g *gate, reg, other cache.ResourceEventHandlerRegistration) {
			l.remove(reg, other)
			l.delete("c") // no handler is told
			close(g.shut)
		},
		"and shut down": func(l *life, g *gate, reg, other cache.ResourceEventHandlerRegistration) {
			l.remove(reg)
			close(g.shut)
			if err := cache.ShutDownEventHandler(l.inf, reg); err != nil {
				l.t.Fatal(err)
			}
			l.remove(other)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range []string{"a", "b", "c"} {
				w.create(name)
			}
			first, second := newRecorder(t), newRecorder(t)
			l := w.live(Options{clock: testingclock.NewFakeClock(time.Now())}).run().synced()
			g := newGate(first)
			reg, other := l.add(g), l.add(second)
			w.delete("a")
			w.delete("b")
			l.equal()
			<-g.called
			eventually(t, "the other is told", func() bool { return slices.Equal(second.names(), []string{"c"}) })
			ends(l, g, reg, other)
			w.create("d") // perhaps no handler is told
			if l.ctx.Err() == nil {
				l.equal()
			}
			l.end()

			there, _, err := w.sim.List(cm(""))
			if err != nil {
				t.Fatal(err)
			}
			w.live(Options{}, first, second).run().synced().equal()
			for _, r := range []*recorder{first, second} {
				eventually(t, "the deletes are told", func() bool { return len(r.names()) == len(there) })
			}
		})
	}
}

// TestRemovedBeforeItBegan: the changes for a handler that never ran are kept.
func TestRemovedBeforeItBegan(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	r := newRecorder(t)
	w.live(Options{}, r).run().synced().equal().end()
	w.delete("a")
	clk := testingclock.NewFakeClock(time.Now())
	l := w.live(Options{clock: clk})
	reg, err := l.inf.AddEventHandler(r)
	if err != nil {
		t.Fatal(err)
	}
	clk.Step(time.Hour) // before the start it is no life
	l.remove(reg)
	l.run().synced().equal()
	w.delete("b")
	l.equal().end()
	w.live(Options{}, r).run().synced().equal()
	eventually(t, "the deletes are told", func() bool { return len(r.names()) == 0 })
}

// TestRemovedInMidLife: nothing is kept for a handler that the life has gone on
// without.
func TestRemovedInMidLife(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.create("b")
	clk := testingclock.NewFakeClock(time.Now())
	r := newRecorder(t)
	l := w.live(Options{clock: clk}, r).run().synced().replayed()
	g := newGate(newRecorder(t))
	reg := l.add(g)
	w.delete("a")
	<-g.called
	r.expect("initial a", "initial b", "delete a")
	told := func() uint64 {
		l.inf.mu.Lock()
		defer l.inf.mu.Unlock()
		return l.inf.toldNow
	}
	held := told()
	l.remove(reg)
	close(g.shut)
	<-reg.(*listener).ended
	w.delete("b")
	r.expect("delete b")
	eventually(t, "the grace has a timer", func() bool { return clk.Waiters() == 1 })
	clk.Step(29 * time.Second)
	l.equal()
	if st := l.inf.Store().State(); told() >= st.Seq {
		t.Errorf("told up to %d of %d after 29 s, held at %d", told(), st.Seq, held)
	}
	clk.Step(time.Second)
	eventually(t, "the mark moves", func() bool { return told() == l.inf.Store().State().Seq })
	l.end()
	late := newRecorder(t)
	late.there["b"] = cm("b")
	w.live(Options{}, late).run().synced().equal().end()
	late.expect()
}

// TestRemoveInsideACall: a handler may remove itself and others, and add some.
func TestRemoveInsideACall(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	l := w.live(Options{}).run().synced()
	for _, typ := range []string{"add", "update", "delete"} {
		done := make(chan error, 1)
		regs := make(chan cache.ResourceEventHandlerRegistration, 1)
		remove := func() { done <- l.inf.RemoveEventHandler(<-regs) }
		h := cache.ResourceEventHandlerFuncs{}
		switch typ {
		case "add":
			h.AddFunc = func(any) { remove() }
		case "update":
			h.UpdateFunc = func(_, _ any) { remove() }
		case "delete":
			h.DeleteFunc = func(any) { remove() }
		}
		reg, err := l.inf.AddEventHandler(h)
		if err != nil {
			t.Fatal(err)
		}
		regs <- reg
		if typ != "add" { // that one is called by the replay, and is no more
			l.replayed()
		}
		switch typ {
		case "update":
			w.update("a", "1")
		case "delete":
			w.delete("a")
		}
		if err := <-done; err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		<-reg.(*listener).ended
	}
}

// TestRemoveDurableInsideACall: a durable handler may remove itself, by its
// handle and by its name, and add itself again.
func TestRemoveDurableInsideACall(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	r := newLedger(t)
	l := w.live(Options{}).run().synced()
	regs := make(chan cache.ResourceEventHandlerRegistration, 1)
	var calls int
	again := make(chan error, 1)
	h := DurableHandlerFunc(func(ctx context.Context, e Event) error {
		calls++
		if err := l.inf.RemoveEventHandler(<-regs); err != nil {
			return err
		}
		if err := l.inf.RemoveDurableHandler("test"); err != nil {
			return err
		}
		_, err := l.inf.AddDurableHandler("test", r, DurableOptions{})
		again <- err
		return err
	})
	reg, err := l.inf.AddDurableHandler("test", h, DurableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	regs <- reg
	select {
	case err := <-again:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it hangs")
	}
	<-reg.(*durableHandler).ShutdownChan()
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	r.expect("reset", "initial a")
	l.acknowledged()
	w.create("b")
	r.expect("add b")
	l.acknowledged().end()
	if hs := handlersOf(t, w.path); len(hs) != 1 || hs[0].Pending > 0 {
		t.Errorf("%+v", hs)
	}
}

// TestInsideACall: calls that a handler may make do not hang, however the handler itself
// is called.
func TestInsideACall(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	for name, call := range map[string]func(l *life) error{
		"WaitForFresh": func(l *life) error { return l.inf.WaitForFresh(context.Background(), 0) },
		"WaitForVersion": func(l *life) error {
			return l.inf.WaitForVersion(context.Background(), l.inf.LastSyncResourceVersion())
		},
		"AddIndexers": func(l *life) error {
			return l.inf.AddIndexers(cache.Indexers{"all": func(any) ([]string, error) { return []string{"all"}, nil }})
		},
		"Add": func(l *life) error {
			if err := l.inf.GetStore().Add(cm("mine")); !errors.Is(err, boltstore.ErrFed) {
				return err
			}
			return nil
		},
		"Compact":  func(l *life) error { _, err := l.db.Compact(context.Background(), nil); return err },
		"Run":      func(l *life) error { l.inf.RunWithContext(context.Background()); return nil },
		"State":    func(l *life) error { l.inf.State(); l.inf.HasSynced(); return l.db.Err() },
		"cancel":   func(l *life) error { l.cancel(); return nil },
		"Close":    func(l *life) error { l.cancel(); _ = l.db.Close(); return nil }, // it says what still runs
		"Snapshot": func(l *life) error { s, err := l.db.Snapshot(); return closed(s, err) },
		"AddEventHandler": func(l *life) error {
			_, err := l.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{})
			return err
		},
		"AddDurableHandler": func(l *life) error {
			_, err := l.inf.AddDurableHandler("other", newLedger(l.t), DurableOptions{})
			return err
		},
		"RemoveDurableHandler": func(l *life) error { return l.inf.RemoveDurableHandler("unknown") },
	} {
		for _, durable := range []bool{false, true} {
			t.Run(fmt.Sprint(name, " durable ", durable), func(t *testing.T) {
				w := newWorld(t)
				w.create("a")
				l := w.live(Options{}).run().synced()
				l.t = t
				done := make(chan error, 1)
				var err error
				if durable {
					_, err = l.inf.AddDurableHandler("test", DurableHandlerFunc(func(context.Context, Event) error {
						select {
						case done <- call(l):
						default:
						}
						return nil
					}), DurableOptions{})
				} else {
					_, err = l.inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
						select {
						case done <- call(l):
						default:
						}
					}})
				}
				if err != nil {
					t.Fatal(err)
				}
				select {
				case err := <-done:
					if err != nil {
						t.Error(err)
					}
				case <-time.After(time.Minute):
					t.Fatal("it hangs")
				}
				l.end()
			})
		}
	}
}

// TestMemoryOfRemovedHandlers: of handlers that come and go, an informer that does not
// sync keeps only those that hold the told mark.
func TestMemoryOfRemovedHandlers(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	w.live(Options{}, newRecorder(t)).run().synced().replayed().end()
	if err := w.sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	l := w.live(Options{})
	for n := range 200 {
		if n == 100 {
			l.run()
		}
		reg, err := l.inf.AddEventHandler(newRecorder(t))
		if err == nil {
			err = cache.ShutDownEventHandler(l.inf, reg)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	l.inf.mu.Lock()
	kept := len(l.inf.absent)
	l.inf.mu.Unlock()
	if kept > 2 {
		t.Errorf("%d removed handlers are kept", kept)
	}
	l.end()
}
