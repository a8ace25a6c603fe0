package fifo

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// consumer handles a queue's output as an informer does, and keeps what it tells, by key
// and in all.
type consumer struct {
	t     *testing.T
	queue cache.Queue
	store cache.Store // what client-go's consumer keeps; ours reads the file
	known map[string]string
	told  map[string][]string
	order []string
}

func (c *consumer) tell(key, what string) {
	c.told[key] = append(c.told[key], what)
	c.order = append(c.order, key+" "+what)
}

// drain pops all changes, up to a last object that it puts behind them.
func (c *consumer) drain(mark *corev1.ConfigMap) {
	c.t.Helper()
	if err := c.queue.Add(mark); err != nil {
		c.t.Fatal(err)
	}
	key := "ns/" + mark.Name
	for c.known[key] != mark.ResourceVersion {
		if _, err := c.queue.Pop(func(obj any, _ bool) error {
			for _, d := range obj.(cache.Deltas) {
				c.delta(d)
			}
			return nil
		}); err != nil {
			c.t.Fatal(err)
		}
	}
}

// delta tells a change. Unchanged objects are a resync, which our queue leaves to the
// handlers.
func (c *consumer) delta(d cache.Delta) {
	obj := d.Object
	switch o := obj.(type) {
	case cache.SyncAllInfo:
		return
	case Relisted: // of an empty file: its objects are found there
		for _, obj := range c.store.List() {
			c.put(obj.(*corev1.ConfigMap))
		}
		return
	case *boltstore.Entry:
		var err error
		if obj, err = o.Object(); err != nil {
			c.t.Fatal(err)
		}
	}
	if d.Type != cache.Deleted {
		c.put(obj.(*corev1.ConfigMap))
		if _, committed := d.Object.(*boltstore.Entry); !committed {
			_ = c.store.Update(obj)
		}
		return
	}
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		c.t.Fatal(err)
	}
	delete(c.known, key)
	what := "deleted"
	if u, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		what = "missed"
		if o, ok := u.Obj.(*corev1.ConfigMap); ok {
			what += " at " + o.ResourceVersion
		}
	}
	c.tell(key, what)
	if _, committed := d.Object.(*boltstore.Entry); !committed {
		_ = c.store.Delete(obj)
	}
}

func (c *consumer) put(o *corev1.ConfigMap) {
	key := "ns/" + o.Name
	was, there := c.known[key]
	switch {
	case !there:
		c.tell(key, "added "+o.ResourceVersion)
	case was != o.ResourceVersion:
		c.tell(key, "updated "+o.ResourceVersion)
	}
	c.known[key] = o.ResourceVersion
}

// TestTellsAsClientGo: after random programs of the calls that a Reflector makes to its
// queue, the consumer has told the same as with client-go's own queue, in the same order
// for each key, and without a Replace in between in the same order overall.
func TestTellsAsClientGo(t *testing.T) {
	for i := range 60 {
		seed := uint64(time.Now().UnixNano()) + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) { beside(t, rand.New(rand.NewPCG(seed, 1)), i%2 == 0) })
	}
}

func beside(t *testing.T, rnd *rand.Rand, replaces bool) {
	q, s := newQueue(t, boltstore.Options{Window: time.Nanosecond, Durability: boltstore.DurabilityProcess}, settings{})
	store := cache.NewStore(cache.DeletionHandlingMetaNamespaceKeyFunc)
	a := &consumer{t: t, queue: q, store: s, known: map[string]string{}, told: map[string][]string{}}
	queue := cache.NewRealFIFOWithOptions(cache.RealFIFOOptions{
		KeyFunction: cache.MetaNamespaceKeyFunc, KnownObjects: store})
	b := &consumer{t: t, queue: queue, store: store, known: map[string]string{}, told: map[string][]string{}}
	both := []*consumer{a, b}
	rv := 0
	next := func(name string) *corev1.ConfigMap { rv++; return object(name, rv) }
	server := map[string]*corev1.ConfigMap{}
	each := func(what string, do func(q cache.Queue) error) {
		t.Helper()
		for _, c := range both {
			if err := do(c.queue); err != nil {
				t.Fatal(what, err)
			}
		}
	}
	replace := func() {
		var list []any
		for _, name := range []string{"a", "b", "c", "d"} {
			switch rnd.IntN(4) {
			case 0:
				delete(server, name)
			case 1:
				server[name] = next(name)
			}
			if o := server[name]; o != nil {
				list = append(list, o)
			}
		}
		rv++
		each("replace", func(q cache.Queue) error { return q.Replace(list, fmt.Sprint(rv)) })
	}
	marks := 0
	drain := func() {
		marks++
		mark := next(fmt.Sprint("mark", marks%2))
		server[mark.Name] = mark
		for _, c := range both {
			c.drain(mark)
		}
		if a.queue.HasSynced() != b.queue.HasSynced() {
			t.Fatalf("synced: %v, client-go's: %v", a.queue.HasSynced(), b.queue.HasSynced())
		}
		for _, c := range both {
			if cache.IsDone(c.queue.HasSyncedChecker()) != c.queue.HasSynced() {
				t.Fatal("HasSynced and its checker differ")
			}
		}
	}
	for _, c := range both {
		if c.queue.HasSynced() {
			t.Fatal("synced before anything")
		}
	}
	replace()
	drain()
	if !a.queue.HasSynced() {
		t.Fatal("not synced after the first list was popped")
	}
	for range 200 {
		name := string(rune('a' + rnd.IntN(4)))
		switch dice := rnd.IntN(20); {
		case dice < 10:
			o := next(name)
			do := cache.Queue.Update
			if server[name] == nil || dice == 0 { // a replayed ADDED
				do = cache.Queue.Add
			}
			server[name] = o
			each("put", func(q cache.Queue) error { return do(q, o) })
		case dice < 14:
			o := next(name)
			delete(server, name)
			each("delete", func(q cache.Queue) error { return q.Delete(o) })
		case dice < 15:
			tomb := cache.DeletedFinalStateUnknown{Key: "ns/" + name, Obj: server[name]}
			if server[name] == nil {
				continue
			}
			drain() // so that both know the same last state
			delete(server, name)
			each("tombstone", func(q cache.Queue) error { return q.Delete(tomb) })
		case dice < 16:
			each("resync", func(q cache.Queue) error { return q.Resync() })
		case dice < 17:
			rv++
			each("bookmark", func(q cache.Queue) error {
				return q.(interface{ Bookmark(string) error }).Bookmark(fmt.Sprint(rv))
			})
		case dice < 18 && replaces:
			drain() // a Reflector lists again when the watch has ended; queued changes are told before
			replace()
		default:
			drain()
		}
	}
	drain()
	if !reflect.DeepEqual(a.told, b.told) {
		t.Fatalf("told:\n%v\nclient-go's consumer:\n%v", a.told, b.told)
	}
	if !replaces && !reflect.DeepEqual(a.order[len(a.order)-100:], b.order[len(b.order)-100:]) {
		t.Fatalf("order:\n%v\nclient-go's:\n%v", a.order, b.order)
	}
	for _, c := range both {
		var ke cache.KeyError
		if err := c.queue.Add("not an object"); !errors.As(err, &ke) {
			t.Errorf("a string: %v", err)
		}
		c.queue.Close()
		if _, err := c.queue.Pop(nil); !errors.Is(err, cache.ErrFIFOClosed) {
			t.Errorf("popped after Close: %v", err)
		}
	}
}
