package informer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestDurableStuck: keys that fail, or are not acknowledged, however many, do not hold up
// others. The next life is told all of them.
func TestDurableStuck(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	var mu sync.Mutex
	stuck := true
	r.answers(func(e Event) error {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case !stuck || e.Reset || e.Object.(*corev1.ConfigMap).Data["data"] == "good":
			return nil
		case e.Seq%2 == 0:
			return errors.New("no")
		}
		return ErrAckLater
	})
	l := w.durably(DurableOptions{}, r).run().synced().replayed()
	for i := range 40 {
		w.create(fmt.Sprint("bad", i))
	}
	w.create("good", "good")
	eventually(t, "good is told", func() bool { return slices.Contains(r.names(), "good") })
	l.end()
	if hs := handlersOf(t, w.path); hs[0].Pending != 40 {
		t.Errorf("%+v", hs[0])
	}
	mu.Lock()
	stuck = false
	mu.Unlock()
	r.taken()
	w.durably(DurableOptions{}, r).run().synced().acknowledged().end()
	told := map[string]bool{}
	for _, e := range r.taken() {
		told[e.Key] = true
	}
	if len(told) != 40 {
		t.Errorf("%d of 40 keys were told", len(told))
	}
	if hs := handlersOf(t, w.path); hs[0].Pending != 0 || hs[0].Bytes != 0 {
		t.Errorf("%+v", hs[0])
	}
}

// TestFreshKeysComeFirst: while 2,000 keys that were pending at the start fail, a change of
// another key is told within the window and 5 ms, and the log is not flooded.
func TestFreshKeysComeFirst(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		lines := 0
		log := funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(args, `"handler"=`) {
				lines++
			}
		}, funcr.Options{})
		w.options.Logger = &log
		for i := range 2000 {
			w.create(fmt.Sprintf("bad%04d", i))
		}
		told := make(chan time.Time, 1)
		handler := DurableHandlerFunc(func(_ context.Context, e Event) error {
			if o, ok := e.Object.(*corev1.ConfigMap); e.Reset || ok && o.Data["data"] == "good" {
				if ok {
					told <- time.Now()
				}
				return nil
			}
			time.Sleep(100 * time.Microsecond) // of the bubble
			return errors.New("no")
		})
		life := func() *life {
			l := w.live(Options{})
			if _, err := l.inf.AddDurableHandler("test", handler, DurableOptions{}); err != nil {
				t.Fatal(err)
			}
			return l.run().synced()
		}
		l := life()
		after(time.Minute)
		l.end()
		l = life()
		for i := range 20 {
			began := time.Now()
			w.create(fmt.Sprint("good", i), "good")
			if took := (<-told).Sub(began); took > 25*time.Millisecond {
				t.Errorf("a change was told after %v", took)
			}
			after(7 * time.Millisecond)
		}
		if lag := l.inf.Lags()[0]; lag.Failing == 0 || lag.Failures == 0 {
			t.Errorf("%+v", lag)
		}
		after(time.Minute)
		if lag := l.inf.Lags()[0]; lag.Pending != 2000 || lag.Failing != 2000 || lag.Age < time.Minute {
			t.Errorf("%+v", lag)
		}
		mu.Lock()
		if lines == 0 || lines > 4*linesPerMinute {
			t.Errorf("%d lines in the log", lines)
		}
		mu.Unlock()
		l.end()
	})
}

// TestFailuresAreLogged: the first failure of a key, and each time that they have doubled.
func TestFailuresAreLogged(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var lines []string
		log := funcr.New(func(_, args string) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, args)
		}, funcr.Options{})
		w.options.Logger = &log
		w.create("a")
		l := w.live(Options{})
		calls := 0
		if _, err := l.inf.AddDurableHandler("mail", DurableHandlerFunc(func(_ context.Context, e Event) error {
			if e.Reset {
				return nil
			}
			calls++
			return errors.New("no stamps")
		}), DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		l.run().synced()
		after(time.Hour)
		l.end()
		logged := 0
		for _, line := range lines {
			if has(line, `"handler"="mail"`, `"key"="default/a"`, "no stamps", `"source"=`,
				fmt.Sprintf(`"failures"=%d`, 1<<logged)) {
				logged++
			}
		}
		if want := 5; calls < 1<<(want-1) || calls >= 1<<want || logged != want {
			t.Errorf("%d lines for %d calls: %q", logged, calls, lines)
		}
	})
}

func has(line string, parts ...string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(line, p) })
}

// TestHotKeysThatWait: keys that change while they are not acknowledged are told again, and
// hold up neither others nor HasSynced, in this life and the next.
func TestHotKeysThatWait(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	var mu sync.Mutex
	var later []Event
	answers := func(e Event) error {
		if o, ok := e.Object.(*corev1.ConfigMap); e.Reset || ok && o.Data["data"] == "good" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		later = append(later, e)
		return ErrAckLater
	}
	r.answers(answers)
	l := w.durably(DurableOptions{}, r).run().synced().replayed()
	for i := range 6 {
		w.create(fmt.Sprint("hot", i))
		for n := range 40 {
			w.update(fmt.Sprint("hot", i), fmt.Sprint(n))
		}
	}
	w.create("good", "good")
	told := func(name, data string) func() bool {
		return func() bool {
			r.recorder.mu.Lock()
			defer r.recorder.mu.Unlock()
			o := r.there[name]
			return o != nil && o.Data["data"] == data
		}
	}
	eventually(t, "another key is told", told("good", "good"))
	for i := range 6 {
		eventually(t, "the last state is told", told(fmt.Sprint("hot", i), "39"))
	}
	ackAll := func() {
		mu.Lock()
		all := later
		later = nil
		mu.Unlock()
		for _, e := range all {
			e.Ack()
		}
	}
	d := l.only()
	eventually(t, "all is told and acknowledged", func() bool { ackAll(); return l.inf.idle(d) })

	r.answers(func(Event) error { return errors.New("no") })
	for n := range 40 {
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
	eventually(t, "acknowledged", func() bool { ackAll(); return l.inf.idle(l.only()) })
	l.end()
}

// TestDeletesOfOneKey: objects come and go under a key while it is pending. The handler is
// told the delete of each object that it was told, and of at most eight in all.
func TestDeletesOfOneKey(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.taken()
	r.answers(func(Event) error { return ErrAckLater })
	known := map[types.UID]bool{}
	tell := func() Event {
		t.Helper()
		events := r.takenOf("default/a", 1)
		e := events[len(events)-1]
		if o, ok := e.Object.(*corev1.ConfigMap); ok {
			known[o.UID] = true
		}
		return e
	}
	w.create("a")
	first := tell()
	w.delete("a")
	gone := tell()
	w.create("a")
	tell()
	first.Ack() // late: no delete is forgotten
	if e := retold(r, w, "a"); len(e.Deleted) != 1 || e.Object == nil {
		t.Errorf("%+v", e)
	}
	gone.Ack()
	if e := retold(r, w, "a"); len(e.Deleted) != 0 || e.Object == nil {
		t.Errorf("%+v", e)
	}
	for range 12 {
		w.delete("a")
		w.create("a")
	}
	l.equal()
	l.end()
	r.taken()

	r.answers(nil)
	r.recorder.mu.Lock()
	clear(r.there)
	r.recorder.mu.Unlock()
	l = w.durably(DurableOptions{}, r).run().synced().acknowledged()
	events := r.taken()
	if len(events) != 1 || len(events[0].Deleted) != 8 {
		t.Fatalf("%+v", events)
	}
	delete(known, gone.Deleted[0].Object.(*corev1.ConfigMap).UID)
	last := uint64(0)
	for _, g := range events[0].Deleted {
		o, ok := g.Object.(*corev1.ConfigMap)
		if !ok || g.Seq <= last {
			t.Errorf("%+v after %d", g, last)
			continue
		}
		delete(known, o.UID)
		last = g.Seq
	}
	if len(known) > 0 {
		t.Errorf("told of and never of their deletes: %v", known)
	}
	l.end()
}

// retold changes an object, and returns what is told of that.
func retold(r *ledger, w *world, name string) Event {
	w.t.Helper()
	r.taken()
	w.update(name, fmt.Sprint(time.Now().UnixNano()))
	events := r.takenOf("default/"+name, 1)
	return events[len(events)-1]
}

// TestOldIsTheSameObject: Event.Old is what was acknowledged last, of the same object, and
// only for the last keys.
func TestOldIsTheSameObject(t *testing.T) {
	w := newWorld(t)
	r := newLedger(t)
	l := w.durably(DurableOptions{}, r).run().synced().acknowledged()
	r.taken()
	old := func(name string) string {
		t.Helper()
		events := r.takenOf("default/"+name, 1)
		l.acknowledged()
		if o, ok := events[len(events)-1].Old.(*corev1.ConfigMap); ok {
			return o.Data["data"]
		}
		return "none"
	}
	see := func(name, want string) {
		t.Helper()
		if got := old(name); got != want {
			t.Errorf("old is %s, not %s", got, want)
		}
	}
	w.create("a", "1")
	see("a", "none")
	w.update("a", "2")
	see("a", "1")
	r.answers(func(Event) error { return ErrAckLater })
	w.update("a", "3")
	r.takenOf("default/a", 1)
	r.answers(nil)
	w.update("a", "4")
	see("a", "2")
	w.delete("a")
	see("a", "none")
	w.create("a", "5")
	see("a", "none")
	for i := range recentKeys {
		w.create(fmt.Sprint("b", i))
		old(fmt.Sprint("b", i))
	}
	w.update("a", "6")
	see("a", "none")
	w.update("a", "7")
	see("a", "6")
	l.end()
}

// TestResetIsAlone: a Reset waits for the calls under way, nothing is told before it is
// acknowledged, and it is told again until then.
func TestResetIsAlone(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		for _, n := range []string{"a", "b", "c"} {
			w.create(n)
		}
		var mu sync.Mutex
		var told []string
		calls, alone, refuse := 0, true, 2
		l := w.live(Options{})
		reg, err := l.inf.AddDurableHandler("test", DurableHandlerFunc(func(_ context.Context, e Event) error {
			mu.Lock()
			calls++
			told = append(told, e.Key)
			alone = alone && (!e.Reset || calls == 1)
			mu.Unlock()
			time.Sleep(time.Second) // of the bubble
			mu.Lock()
			defer mu.Unlock()
			alone = alone && (!e.Reset || calls == 1)
			calls--
			if e.Reset && refuse > 0 {
				refuse--
				return errors.New("no")
			}
			return nil
		}), DurableOptions{Workers: 3})
		if err != nil {
			t.Fatal(err)
		}
		l.run().synced()
		after(time.Minute)
		if !reg.HasSynced() {
			t.Error("not synced")
		}
		l.acknowledged()
		slices.Sort(told[3:])
		if want := []string{"", "", "", "default/a", "default/b", "default/c"}; !alone || !slices.Equal(told, want) {
			t.Errorf("alone %v: %q", alone, told)
		}
		l.end()
	})
}
