package informer

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"weak"

	"github.com/kubewake/kubewake/boltstore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// TestHotKeysThatWait: keys that are told of more than a handler takes ahead of
// its acknowledgement move to the file, too, and hold up neither others nor
// HasSynced.
func TestHotKeysThatWait(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	var mu sync.Mutex
	var later []Event
	answers := func(e Event) error {
		if e.Object.(*corev1.ConfigMap).Data["data"] == "good" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		later = append(later, e)
		return ErrAckLater
	}
	r.answers(answers)
	o := DurableOptions{MaxPending: 3 * aheadOfAck, StuckAfter: 1}
	l := w.durably(o, r).run().synced().replayed()
	for i := range 6 {
		w.create(fmt.Sprint("hot", i))
		for n := range 2 * aheadOfAck {
			w.update(fmt.Sprint("hot", i), fmt.Sprint(n))
		}
	}
	w.create("good", "good")
	eventually(t, "another key is told", func() bool {
		r.recorder.mu.Lock()
		defer r.recorder.mu.Unlock()
		return r.there["good"] != nil
	})
	d := l.only()
	eventually(t, "they are in the file", func() bool {
		hs, err := l.inf.store.Handlers()
		return err == nil && len(hs) == 1 && hs[0].Parked >= 3
	})
	ackAll := func() {
		mu.Lock()
		defer mu.Unlock()
		for _, e := range later {
			e.Ack()
		}
		later = nil
	}
	eventually(t, "all is told and acknowledged", func() bool {
		ackAll()
		return d.idle()
	})
	for i := range 6 {
		if got := r.there[fmt.Sprint("hot", i)]; got == nil || got.Data["data"] != fmt.Sprint(2*aheadOfAck-1) {
			t.Errorf("hot%d is %v", i, got)
		}
	}

	// Of an earlier life there is more than is told ahead.
	r.answers(func(Event) error { return errors.New("no") })
	for n := range 2 * aheadOfAck {
		w.update("hot0", fmt.Sprint("again", n))
	}
	l.equal().end()
	r.answers(answers)
	l = w.live(Options{})
	reg, err := l.inf.AddDurableHandler("test", r, DurableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	l.run().synced()
	eventually(t, "it has synced, and nothing is acknowledged", reg.HasSynced)
	eventually(t, "acknowledged", func() bool { ackAll(); return l.only().idle() })
	l.end()
}

// TestLeftToTheReplay: what was left to the replay while a commit parked it is
// not told by a later life.
func TestLeftToTheReplay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	d := s.d
	s.change(cache.Added, "a")
	last := s.flush()
	if p := d.Position(); p.Cursor != 0 || !p.Replaying { // the commit might park what is behind it
		t.Fatalf("%+v", p)
	}
	for d.cursor < last { // meanwhile it is left to the replay
		if !d.fillEntries(last) {
			t.Fatalf("at %d of %d", d.cursor, last)
		}
	}
	if d.settled["default/a"] != last {
		t.Errorf("settled %v: a record of it would stay", d.settled)
	}
	// The same behind a delete that is told: it goes with that.
	d.known = last + 1
	s.change(cache.Deleted, "a")
	s.change(cache.Added, "a")
	last = s.flush()
	for d.cursor < last {
		if !d.fillEntries(last) {
			t.Fatalf("at %d of %d", d.cursor, last)
		}
	}
	if q := d.keys["default/a"]; q == nil || len(q.tasks) != 1 || q.tasks[0].entry.Type != cache.Deleted || q.tasks[0].last != last {
		t.Errorf("%+v", q)
	}
	s.end()
}

// TestQueueLetsObjectsGo: an item that waits keeps no object in memory.
func TestQueueLetsObjectsGo(t *testing.T) {
	q := NewDurableQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()), func(e Event) []string { return []string{e.Key} })
	defer q.ShutDown()
	obj := cm("a")
	gone := weak.Make(obj)
	if err := q.HandleEvent(t.Context(), Event{Key: "a", Object: obj, old: func() any { return obj }}); !errors.Is(err, ErrAckLater) {
		t.Fatal(err)
	}
	obj = nil
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the object is kept")
	}
	item, _ := q.Get()
	q.Done(item)
}

// TestReloadsWithinAPage: what is to be read from the file is, also where a page
// of the replay is in hand, memory is full and a call does not return.
func TestReloadsWithinAPage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	s.change(cache.Added, "a")
	s.change(cache.Added, "b")
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{})
	s.rv = 2
	d := s.d
	d.o.MaxPending, d.o.Workers = 1, 2
	s.change(cache.Deleted, "a")
	last := s.flush()
	for d.cursor < last {
		if !d.fillEntries(last) {
			t.Fatalf("at %d of %d", d.cursor, last)
		}
	}
	// called gives a key to a worker that is not there.
	called := func(key string) (*keyQueue, *delivery) {
		d.mu.Lock()
		defer d.mu.Unlock()
		q := d.keys[key]
		d.ready, q.ready, q.busy = nil, false, true
		d.calls++
		return q, &delivery{d: d, q: q, t: q.tasks[0], turn: q.turn}
	}
	a, call := called("default/a")
	d.returned(call, errors.New("no"))
	d.mu.Lock()
	d.block()
	d.mu.Unlock()
	eventually(t, "parked", func() bool {
		s.change(cache.Added, fmt.Sprint("tick", s.rv))
		s.flush()
		d.mu.Lock()
		defer d.mu.Unlock()
		return a.tasks[0].entry == nil
	})
	s.change(cache.Deleted, "b")
	s.change(cache.Added, "c")
	s.flush()
	var filling sync.WaitGroup
	filling.Go(func() {
		for d.ctx.Err() == nil {
			if tick := d.inf.backlog.Tick(); !d.fill() {
				d.inf.backlog.Wait(d.ctx, tick)
			}
		}
	})
	eventually(t, "full", func() bool { d.mu.Lock(); defer d.mu.Unlock(); return d.blocked && d.keys["default/b"] != nil })
	_, call = called("default/b")
	d.mu.Lock()
	a.waiting = false
	d.schedule(a)
	d.mu.Unlock()
	eventually(t, "a is read from the file", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.loads) == 0 && a.tasks[0].entry != nil
	})
	d.returned(call, nil)
	_, call = called("default/a")
	d.returned(call, nil)
	d.cancel()
	d.wakeAll()
	filling.Wait()
	s.end()
}

// TestReloadedBehindInitial: the file has a newer state of an object than that
// which the replay has shown and which waits behind what is parked. The older
// one is not told after it.
func TestReloadedBehindInitial(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	s := stand(t, path, boltstore.Options{})
	s.change(cache.Added, "a")
	s.flush()
	s.end()

	s = stand(t, path, boltstore.Options{JournalBytes: 1})
	s.rv = 1
	d := s.d
	s.change(cache.Deleted, "a")
	last := s.flush()
	for d.cursor < last {
		if !d.fillEntries(last) {
			t.Fatalf("at %d of %d", d.cursor, last)
		}
	}
	q := d.keys["default/a"]
	d.o.MaxPending = 1
	d.returned(s.called("default/a"), errors.New("no"))
	d.mu.Lock()
	d.block()
	d.mu.Unlock()
	parkedTo := func(seq uint64) {
		t.Helper()
		d.inf.store.SetTold(d.inf.store.State().Seq)
		eventually(t, "parked", func() bool {
			s.change(cache.Added, fmt.Sprint("tick", s.rv))
			s.flush()
			p, err := d.h.ParkedOf([]string{"default/a"}, 0)
			d.mu.Lock()
			defer d.mu.Unlock()
			return err == nil && len(p.Keys) == 1 && p.Last[0] >= seq && q.tasks[0].entry == nil
		})
	}
	parkedTo(last)
	s.change(cache.Added, "a")
	s.flush()
	page, err := d.inf.store.ReplayOf([]string{"default/a"})
	if err != nil || len(page.Entries) != 1 {
		t.Fatalf("%+v %v", page, err)
	}
	d.mu.Lock()
	d.cursor, d.replay = page.Seq, walk{begun: true}
	d.add("default/a", &task{entry: page.Entries[0], initial: true, last: page.Seq})
	d.mu.Unlock()
	s.change(cache.Updated, "a")
	last = s.flush()
	parkedTo(last)
	d.mu.Lock()
	q.waiting = false
	d.schedule(q)
	d.mu.Unlock()
	for len(d.loads) > 0 && d.fillLoads(1) {
	}
	got := ""
	for _, x := range q.tasks {
		o, err := x.entry.Object()
		if err != nil {
			t.Fatal(err)
		}
		got += fmt.Sprintf("%s %s, ", x.entry.Type, o.(*corev1.ConfigMap).ResourceVersion)
	}
	if want := fmt.Sprintf("Deleted 2, Added %d, ", s.rvOf["a"]); got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	s.end()
}
