package informer

import (
	"context"
	"errors"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/kubewake/kubewake/boltstore"
)

// durableCall is one call of a durable handler.
type durableCall struct {
	d       *durableHandler
	key     string
	number  uint64
	lists   int
	before  boltstore.Receipt // of the call before
	attempt int
	receipt boltstore.Receipt
}

// work tells the keys in the queue until the handler ends.
func (d *durableHandler) work() {
	for {
		key, over := d.queue.Get()
		if over {
			return
		}
		d.tell(key)
	}
}

// tell tells the handler a key, unless there is nothing to tell.
func (d *durableHandler) tell(key string) {
	defer d.queue.Done(key)
	c := d.begin(key)
	if c == nil {
		return
	}
	e, err := d.read(c)
	if err == nil {
		err = d.call(e)
	}
	d.settle(c, err)
}

// begin begins a call of a key that is due. A Reset waits until no other call is under way,
// and while it is owed no other call begins.
func (d *durableHandler) begin(key string) *durableCall {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key == "" && d.calling > 0 {
		d.idle.Wait()
	}
	if d.ctx.Err() != nil {
		return nil
	}
	if key != "" && d.keys[""] != nil {
		d.drop(key)
		return nil
	}
	c := d.hand.begin(key)
	if c != nil {
		c.d, c.lists = d, d.lists
	}
	if d.walked == walkedKeys/2 {
		d.poke() // room for more
	}
	return c
}

// The results of calls that are not made.
var (
	errNotPending = errors.New("not pending")
	errKnown      = errors.New("the handler was told, and has still to acknowledge it")
)

// read reads what is to be told.
func (d *durableHandler) read(c *durableCall) (Event, error) {
	e := Event{Key: c.key, Attempt: c.attempt, call: c}
	if c.key == "" {
		r, owed := d.claim.ResetOwed()
		if !owed {
			return e, errNotPending
		}
		e.Reset, c.receipt = true, r
		_, err := d.known(c, nil)
		return e, err
	}
	p, ok, err := d.claim.Read(c.key)
	if err != nil {
		return e, err
	}
	if !ok {
		return e, errNotPending
	}
	e.Deleted, e.Object, e.Initial, e.Seq, e.Since = p.Deleted, p.Object, p.Initial, p.Seq, p.Since
	c.receipt = p.Receipt
	for i, g := range e.Deleted {
		e.Deleted[i].Object = d.inf.named(g.Object)
	}
	if e.Object != nil {
		d.inf.mutated.AddObject(e.Object)
	}
	e.Old, err = d.known(c, e.Object)
	return e, err
}

// known notes what a call tells. It returns the object that was acknowledged last.
func (d *durableHandler) known(c *durableCall, obj any) (old any, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hand.read(c) {
		return nil, errKnown
	}
	return d.recent.told(c.key, c.receipt, obj), nil
}

// The results of calls that did not return.
var (
	errPanicked = errors.New("the handler panicked")
	errExited   = errors.New("the handler has ended its goroutine (runtime.Goexit, t.FailNow)")
)

// call calls the handler. If that ends the goroutine, the call has failed, and another
// goroutine takes its place.
func (d *durableHandler) call(e Event) (err error) {
	returned := false
	defer func() {
		if !returned {
			d.working.Go(d.work)
			d.settle(e.call, errExited)
		}
	}()
	panicked := func(context.Context, any) { returned, err = true, errPanicked }
	defer utilruntime.HandleCrashWithLogger(d.inf.store.Logger(), panicked)
	err = d.handler.HandleEvent(d.ctx, e)
	returned = true
	return err
}

// settle notes how a call has ended.
func (d *durableHandler) settle(c *durableCall, err error) {
	d.mu.Lock()
	if d.end(c) {
		d.poke()
	}
	d.mu.Unlock()
	switch {
	case err == nil:
		d.acknowledge(c)
	case errors.Is(err, errKnown), errors.Is(err, ErrAckLater), d.ctx.Err() != nil: // it stays pending
	case errors.Is(err, errNotPending):
		d.leave(c, false)
	case errors.Is(err, boltstore.ErrNotYet):
		d.leave(c, true)
	default:
		d.fail(c, err)
	}
}

// leave forgets a key that is not pending, or whose object is unread until the source is
// listed.
func (d *durableHandler) leave(c *durableCall, unread bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.keys[c.key]
	if st == nil || st.call != c.number || st.changed {
		return // told soon
	}
	d.drop(c.key)
	if !unread {
		return
	}
	d.unread = true
	if d.lists != c.lists { // since the call began
		d.readable()
	}
}

// readable has the walk read the keys again that could not be read. The caller holds the mutex.
func (d *durableHandler) readable() {
	d.lists++
	d.walkDue = d.walkDue || d.unread
	d.unread = false
	d.poke()
}

// acknowledge acknowledges what the handler was told by a call.
func (d *durableHandler) acknowledge(c *durableCall) {
	d.claim.Acknowledge(c.key, c.receipt)
	d.mu.Lock()
	defer d.mu.Unlock()
	st := d.keys[c.key]
	if st == nil || st.call == 0 || st.receipt != c.receipt {
		return // it was told more since
	}
	d.recent.acknowledged(c.key, c.receipt)
	changed := st.changed
	d.drop(c.key)
	if changed {
		d.due(boltstore.PendingKey{Key: c.key, Since: d.inf.o.clock.Now()})
	}
	d.poke()
}

// fail has a key told again after a backoff, if the call is the key's last one.
func (d *durableHandler) fail(c *durableCall, err error) {
	d.mu.Lock()
	st := d.keys[c.key]
	if st == nil || st.call != c.number || st.refused || d.ctx.Err() != nil {
		if st != nil && st.open == c.number {
			st.open = 0 // the call that has begun tells it again
		}
		d.mu.Unlock()
		return
	}
	st.refused = true
	if st.failures++; st.failures == 1 {
		d.failing++
	}
	d.failures++
	n := st.failures
	d.queue.AddRateLimited(c.key)
	d.mu.Unlock()
	d.complain(c.key, n, err)
}

// drop forgets a key and its backoff. The caller holds the mutex.
func (d *durableHandler) drop(key string) {
	if d.forget(key) {
		d.queue.Forget(key)
	}
	if key == "" {
		d.walkDue = true // the Reset was acknowledged: keys become pending
	}
}

// complain logs a key's first failure, and each time that their number has doubled.
func (d *durableHandler) complain(key string, failures int, err error) {
	if failures&(failures-1) != 0 {
		return
	}
	d.mu.Lock()
	unlogged, ok := d.logged.allow(d.inf.o.clock.Now())
	d.mu.Unlock()
	log := d.inf.store.Logger().WithValues("source", d.inf.store.Source().String(), "handler", d.name)
	if unlogged > 0 {
		log.Info("More failures of a durable handler were not logged, since there were too many in a minute",
			"unlogged", unlogged, "most", linesPerMinute)
	}
	if ok {
		log.Error(err, "A durable handler has failed, and will be told again", "key", key, "failures", failures)
	}
}
