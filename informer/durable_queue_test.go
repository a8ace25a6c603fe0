package informer

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/boltstore"
)

// request is like controller-runtime's.
type request struct{ Namespace, Name string }

func requestsOf(e Event) []request {
	ns, name, err := cache.SplitMetaNamespaceKey(e.Key)
	if err != nil || e.Reset {
		return nil
	}
	return []request{{ns, name}}
}

func newTestQueue() *DurableQueue[request] {
	limiter := workqueue.DefaultTypedControllerRateLimiter[request]()
	return NewDurableQueue(workqueue.NewTypedRateLimitingQueue(limiter), requestsOf)
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

	var told atomic.Int64 // of begun
	q = NewDurableQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[request]()),
		func(e Event) []request {
			items := requestsOf(e)
			if len(items) > 0 && items[0].Name == "begun" {
				told.Add(1)
			}
			return items
		})
	l = w.durably(DurableOptions{}, q).run().synced().equal()
	var got []string
	for range 5 {
		item, _ := q.Get()
		got = append(got, item.Name)
		if item.Name == "begun" {
			// A change while it is being worked on is work of its own.
			w.update("begun", "1")
			eventually(t, "the change is told", func() bool { return told.Load() == 2 })
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
	if n := q.work.Len(); n > 0 || len(q.taken) > 0 {
		t.Errorf("it keeps %d events", n)
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
	for i := range 40 {
		work("a")
		w.update("a", fmt.Sprint(i))
	}
	work("a")
	w.delete("a")
	work("a")
	w.create("a", "again") // it has only one event in hand
	work("a")
	if n := q.work.Len(); n != 1 {
		t.Errorf("%d events wait", n)
	}
	w.delete("a")
	work("a")
	eventually(t, "both deletes are pending", func() bool {
		p, ok, err := l.only().claim.Read("default/a")
		return err == nil && ok && len(p.Deleted) == 2
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
	q := NewDurableQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		func(e Event) []string { return []string{e.Key} })
	l := w.durably(DurableOptions{}, q).run().synced()
	work := func(want string) {
		t.Helper()
		eventually(t, "work", func() bool { return q.Len() == 1 })
		item, _ := q.Get()
		if item != want {
			t.Fatalf("work on %s, not on %s", item, want)
		}
		q.AddAfter(item, time.Hour)
		q.Done(item)
	}
	work("")
	work("default/a")
	l.end()
	q.ShutDown()
}

// TestQueueItemsOfTwoEvents: a key whose last event led to another item than the one before is
// acknowledged once both are done.
func TestQueueItemsOfTwoEvents(t *testing.T) {
	w := newWorld(t)
	w.create("a", "one")
	owners := func(e Event) []string {
		if o, ok := e.Object.(*corev1.ConfigMap); ok {
			return []string{o.Data["data"]}
		}
		return nil
	}
	queue := func() *DurableQueue[string] {
		limiter := workqueue.DefaultTypedControllerRateLimiter[string]()
		return NewDurableQueue(workqueue.NewTypedRateLimitingQueue(limiter), owners)
	}
	q := queue()
	l := w.durably(DurableOptions{}, q).run().synced()
	eventually(t, "one", func() bool { return q.Len() == 1 })
	w.update("a", "two")
	eventually(t, "two", func() bool { return q.Len() == 2 })
	one, _ := q.Get()
	two, _ := q.Get()
	q.Done(two)
	if one != "one" || l.inf.idle(l.only()) {
		t.Errorf("%s is not done, and the key is acknowledged", one)
	}
	q.Done(one)
	l.acknowledged().end()
	q.ShutDown()
}

// TestQueueLetsObjectsGo: a waiting item keeps no object in memory.
func TestQueueLetsObjectsGo(t *testing.T) {
	q := NewDurableQueue(workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		func(e Event) []string { return []string{e.Key} })
	defer q.ShutDown()
	obj := cm("a")
	gone := weak.Make(obj)
	if err := q.HandleEvent(t.Context(),
		Event{Key: "a", Object: obj, Old: obj, Deleted: []boltstore.Gone{{Object: obj}}}); !errors.Is(err,
		ErrAckLater) {
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
