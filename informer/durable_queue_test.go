package informer

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/informer/internal/durable"
)

// request is like controller-runtime's.
type request struct{ Namespace, Name string }

func requestsOf(e Event) []request {
	ns, name, err := cache.SplitMetaNamespaceKey(e.Key)
	if err != nil || e.Type == EventReset {
		return nil
	}
	return []request{{ns, name}}
}

func newTestQueue() *DurableQueue[request] {
	return NewDurableQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]()), requestsOf)
}

// TestDurableQueue: unfinished work, and work that was asked for again, is there after a
// restart; finished work is not.
func TestDurableQueue(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"again", "begun", "done", "later", "retried"} {
		w.create(n)
	}
	q := newTestQueue()
	l := w.durably(DurableOptions{}, q).run().synced().equal()
	eventually(t, "all are queued", func() bool { return q.Len() == 5 })
	for range 5 {
		item, _ := q.Get()
		switch item.Name {
		case "again":
			q.Add(item)
		case "begun":
			continue
		case "later":
			q.AddAfter(item, time.Hour)
		case "retried":
			q.AddRateLimited(item)
		}
		q.Forget(item)
		q.Done(item)
	}
	w.create("waits")
	eventually(t, "it waits beside again and retried", func() bool { return q.Len() == 3 })
	l.end()
	q.ShutDown()

	q = newTestQueue()
	l = w.durably(DurableOptions{}, q).run().synced().equal()
	var got []string
	for range 5 {
		item, _ := q.Get()
		got = append(got, item.Name)
		if item.Name == "begun" {
			// A change while it is being worked on is work of its own.
			w.update("begun", "1")
			eventually(t, "the change is told", func() bool { q.mu.Lock(); defer q.mu.Unlock(); return len(q.state[item].waiting) == 1 })
		}
		q.Done(item)
	}
	slices.Sort(got)
	if s := strings.Join(got, " "); s != "again begun later retried waits" {
		t.Errorf("work after the restart: %s", s)
	}
	if item, _ := q.Get(); item.Name != "begun" || q.Len() != 0 {
		t.Errorf("then %s and %d others", item.Name, q.Len())
	}
	l.end()
	q.ShutDown()

	q = newTestQueue()
	l = w.durably(DurableOptions{}, q).run().synced().equal()
	item, _ := q.Get()
	q.Done(item)
	l.acknowledged()
	if item.Name != "begun" || q.Len() != 0 {
		t.Errorf("at last %s and %d others", item.Name, q.Len())
	}
	l.end()
	q.ShutDown()
	if len(q.state) > 0 {
		t.Errorf("it keeps %v", q.state)
	}
}

// TestQueueAsksAgain: an item that always asks to be seen again is worked on for each
// change, however many there are, and for the last one after a restart.
func TestQueueAsksAgain(t *testing.T) {
	w := newWorld(t)
	q := newTestQueue()
	l := w.durably(DurableOptions{}, q).run().synced()
	work := func(name string) {
		t.Helper()
		eventually(t, "work on "+name, func() bool { return q.Len() == 1 })
		item, _ := q.Get()
		if item.Name != name {
			t.Fatalf("work on %s, not on %s", item.Name, name)
		}
		q.AddAfter(item, time.Hour)
		q.Done(item)
	}
	w.create("a")
	for i := range 2 * durable.AheadOfAck {
		work("a")
		w.update("a", fmt.Sprint(i))
	}
	work("a")
	w.delete("a")
	work("a")
	eventually(t, "what is older is acknowledged", func() bool {
		tasks := l.only().Inspect().Tasks
		return len(tasks) == 1 && tasks["default/a"] == 1
	})
	l.equal().end()
	q.ShutDown()

	q = newTestQueue()
	l = w.durably(DurableOptions{}, q).run().synced()
	work("a")
	l.end()
	q.ShutDown()
}

// TestQueueResetAsksAgain: items that ask to be seen again for a Reset do not keep the
// Reset from being acknowledged: otherwise nothing would be told any more.
func TestQueueResetAsksAgain(t *testing.T) {
	w := newWorld(t)
	w.create("a")
	q := NewDurableQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()), func(e Event) []string { return []string{string(e.Type)} })
	l := w.durably(DurableOptions{}, q).run().synced()
	work := func(want cache.DeltaType) {
		t.Helper()
		eventually(t, "work", func() bool { return q.Len() == 1 })
		item, _ := q.Get()
		if item != string(want) {
			t.Fatalf("work on %s, not on %s", item, want)
		}
		q.AddAfter(item, time.Hour)
		q.Done(item)
	}
	work(cache.Added)
	l.only().Lost()
	work(EventReset)
	work(cache.Added)
	l.end()
	q.ShutDown()
}

// TestQueueLetsObjectsGo: a waiting item keeps no object in memory.
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
