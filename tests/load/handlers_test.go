//go:build linux

package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"

	"github.com/kubewake/kubewake/informer"
)

// way is how a handler takes its calls.
type way int

const (
	plain  way = iota
	prompt     // durable, and acknowledges at once
	fails      // now and then
	tenant     // always, for some keys
	later      // acknowledges in any order, and refuses some
	queue      // a workqueue, whose workers look at what they find
)

type handler struct {
	name   string
	src    int
	way    way
	stalls bool
}

// again says whether calls that were made may be made again within a life.
func (h handler) again() bool { return h.way == later || h.way == queue }

// handlers are all 50. The place of one is that of its row.
func handlers() (all []handler) {
	add := func(src int, w way, n, stalling int) {
		for i := range n {
			all = append(all, handler{fmt.Sprintf("%s-%d-%d", resources[src], w, i), src, w, i < stalling})
		}
	}
	add(large, plain, 16, 2)
	add(large, prompt, 8, 2)
	add(large, fails, 5, 0)
	add(large, tenant, 3, 0)
	add(large, later, 4, 0)
	add(large, queue, 4, 0)
	add(small, plain, 5, 1)
	for w := prompt; w <= queue; w++ {
		add(small, w, 1, 0)
	}
	return all
}

// gate stalls a handler.
type gate struct {
	mu   sync.Mutex
	open chan struct{}
}

func (g *gate) channel() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open
}

// swing shuts the gate and opens it, for random times, until calm.
func (g *gate) swing(rnd *rand.Rand, most time.Duration, calm <-chan struct{}) {
	for {
		g.mu.Lock()
		g.open = make(chan struct{})
		open := g.open
		g.mu.Unlock()
		ended := !wait(rnd, most, calm)
		close(open)
		if ended || !wait(rnd, most, calm) {
			return
		}
	}
}

// wait lets a random time pass. It is false once calm is closed.
func wait(rnd *rand.Rand, most time.Duration, calm <-chan struct{}) bool {
	select {
	case <-time.After(time.Duration(rnd.Int64N(int64(most)))):
		return true
	case <-calm:
		return false
	}
}

// register adds the handler to its informer.
func (b *belief) register(inf *informer.Informer, c *child) error {
	pass := func(ctx context.Context) error { return nil }
	if b.stalls {
		g, most := &gate{}, c.spec.Stall
		if b.way == plain {
			most = c.spec.StallPlain
		}
		go g.swing(c.random(), most, c.calm)
		pass = func(ctx context.Context) error {
			select {
			case <-g.channel():
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	if b.way == plain {
		_, err := inf.AddEventHandler(b.plain(inf, pass))
		return err
	}
	o := informer.DurableOptions{Workers: 2, RateLimiter: limiter()}
	var h informer.DurableHandler
	switch b.way {
	case queue:
		b.asked = make([]atomic.Uint64, len(b.row))
		q := informer.NewDurableQueue(workqueue.NewTypedRateLimitingQueue(limiter()), func(e informer.Event) []string {
			if e.Reset {
				b.reset()
				return nil
			}
			for _, d := range e.Deleted {
				b.ask(false, d.Object)
			}
			b.ask(true, e.Object)
			return []string{e.Key}
		})
		for range o.Workers {
			c.reconcilers.Go(func() { b.reconcile(inf, q, c) })
		}
		c.queues = append(c.queues, q)
		h = q
	default:
		h = b.durable(inf, c, pass)
	}
	_, err := inf.AddDurableHandler(b.name, h, o)
	return err
}

// limiter has keys that fail tried again while the test looks on.
func limiter() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](5*time.Millisecond, 2*time.Second)
}

func (b *belief) plain(inf *informer.Informer, pass func(context.Context) error) cache.ResourceEventHandler {
	tell := func(live bool, obj any) {
		_ = pass(context.Background()) // a context that does not end
		b.tell(inf, live, obj)
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { tell(true, obj) },
		UpdateFunc: func(old, obj any) {
			if was, is := old.(metav1.Object), obj.(metav1.Object); was.GetUID() != is.GetUID() {
				b.fault("%s is told an update of %s by %s", b.name, was.GetUID(), is.GetUID())
			}
			tell(true, obj)
		},
		DeleteFunc: func(obj any) { tell(false, obj) },
	}
}

// object returns the object of an event, as far as it is known.
func object(obj any) metav1.Object {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	m, _ := obj.(metav1.Object) // nil: nothing is known of it
	return m
}

// tell takes a handler's call, and checks now and then whether the object can be read.
func (b *belief) tell(inf *informer.Informer, live bool, obj any) {
	m := object(obj)
	if m == nil {
		b.fault("%s is told %v without an object, live %v", b.name, obj, live)
		return
	}
	version := b.told(live, m)
	if version%sampled == 0 {
		if err := b.sizes.whole(m); err != nil {
			b.fault("%s is told %s at %d: %v", b.name, m.GetName(), version, err)
		}
	}
	if version%64 == 0 {
		b.read(inf, m.GetNamespace()+"/"+m.GetName(), wordOf(live, b.life, 0, version))
	}
}

// read reads a key of which the handler was told. An older state is a fault.
func (b *belief) read(inf *informer.Informer, key string, told word) (found metav1.Object) {
	obj, exists, err := inf.GetStore().GetByKey(key)
	if err != nil {
		b.fault("%s reads %s: %v", b.name, key, err)
	}
	if err != nil || !exists {
		return nil
	}
	found = obj.(metav1.Object)
	_, _, version, err := identity(found)
	if err != nil || version < told.version() || !told.live() && told != 0 && version == told.version() {
		b.fault("%s is told version %d of %s, live %v, and reads %d: %v", b.name, told.version(), key, told.live(),
			version, err)
	}
	return found
}

// reset takes a Reset. A name that the file does not know yet begins with one: no key has
// been told.
func (b *belief) reset() {
	for slot := range b.row {
		if b.row[slot].Load() != 0 {
			b.fault("%s is Reset, and was told slot %d", b.name, slot)
			return
		}
	}
}

// ask notes what a queue is told of a key.
func (b *belief) ask(live bool, obj any) {
	if m := object(obj); m != nil {
		if slot, inc, version, err := identity(m); err == nil {
			b.asked[slot].Store(uint64(wordOf(live, b.life, inc, version)))
		}
	}
}

var errNotNow = errors.New("not now")

func (b *belief) durable(inf *informer.Informer, c *child, pass func(context.Context) error) informer.DurableHandler {
	ack := func(e informer.Event) error { return nil }
	if b.way == later {
		ack = c.acknowledger()
	}
	return informer.DurableHandlerFunc(func(ctx context.Context, e informer.Event) error {
		if err := pass(ctx); err != nil {
			return err
		}
		if e.Reset {
			b.reset()
			return nil
		}
		if e.Object == nil && len(e.Deleted) == 0 {
			b.fault("%s is told of %s neither a delete nor an object", b.name, e.Key)
		}
		if !c.isCalm() && (b.way == tenant && slotOf(e.Key)%64 == 5 || b.way == fails && rand.IntN(50) == 0) {
			return errNotNow
		}
		for _, d := range e.Deleted {
			b.tell(inf, false, d.Object)
		}
		if e.Object != nil {
			b.tell(inf, true, e.Object)
		}
		if m := object(e.Object); m != nil {
			if old, ok := e.Old.(metav1.Object); ok && old.GetUID() != m.GetUID() {
				b.fault("%s is told an update of %s by %s", b.name, old.GetUID(), m.GetUID())
			}
		}
		return ack(e)
	})
}

// acknowledger returns a function that soon acknowledges events, in any order, and
// refuses some.
func (c *child) acknowledger() func(informer.Event) error {
	events := make(chan informer.Event, 256)
	rnd := c.random()
	go func() {
		var all []informer.Event
		for flush := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case e := <-events:
				all = append(all, e)
			case <-flush.C:
			}
			if len(all) < 64 && len(events) > 0 {
				continue
			}
			rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, e := range all {
				if !c.isCalm() && rnd.IntN(100) == 0 {
					e.Nack(errNotNow)
				} else {
					e.Ack()
				}
			}
			all = nil
		}
	}()
	return func(e informer.Event) error {
		events <- e.WithoutObjects()
		return informer.ErrAckLater
	}
}

// reconcile notes the state of each key that it gets, after some failures.
func (b *belief) reconcile(inf *informer.Informer, q *informer.DurableQueue[string], c *child) {
	for {
		key, shutdown := q.Get()
		if shutdown {
			return
		}
		if !c.isCalm() && rand.IntN(50) == 0 {
			q.AddRateLimited(key)
			q.Done(key)
			continue
		}
		slot := slotOf(key)
		is := wordOf(false, b.life, 0, 0)
		if m := b.read(inf, key, word(b.asked[slot].Load())); m != nil {
			_, inc, version, _ := identity(m) // read has found fault with one that it cannot read
			is = wordOf(true, b.life, inc, version)
		}
		b.row[slot].Store(uint64(is))
		b.words[calls].Add(1)
		q.Forget(key)
		q.Done(key)
	}
}
