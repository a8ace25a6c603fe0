package durable

import (
	"errors"

	"github.com/kubewake/kubewake/boltstore"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
)

// Delivery is one telling of a task, which is acknowledged or refused.
type Delivery struct {
	d    *Handler
	q    *keyQueue
	t    *task
	turn int // of the queue
}

// End acknowledges what was told if err is nil, and refuses it otherwise. It has
// no effect if the key is being told again already, or the task is settled.
func (dl *Delivery) End(err error) { dl.d.end(dl, err) }

// work tells what is ready until the handler is gone.
func (d *Handler) work() {
	for {
		d.mu.Lock()
		for len(d.queues.due) == 0 && d.ctx.Err() == nil {
			d.queues.ready.Wait()
		}
		if d.ctx.Err() != nil {
			d.mu.Unlock()
			return
		}
		q := d.queues.due[0]
		d.queues.due = d.queues.due[1:]
		q.ready = false
		t := q.next()
		if t == nil || t.away() { // it was refused, or moved to the file, since it became ready
			d.schedule(q)
			d.mu.Unlock()
			continue
		}
		q.busy = true
		d.queues.calls++
		q.reached = max(q.reached, t.last)
		if q.told == 0 {
			q.since = d.host.Clock.Now()
		}
		attempt := q.failed + 1
		dl := &Delivery{d: d, q: q, t: t, turn: q.turn}
		d.mu.Unlock()
		err := d.tell(dl, attempt)
		d.returned(dl, err)
	}
}

// tell calls the handler. An entry that cannot be decoded is not told: its
// source is degraded and will be read anew.
func (d *Handler) tell(dl *Delivery, attempt int) (err error) {
	t := dl.t
	e := Telling{Key: dl.q.key, Attempt: attempt, Initial: t.initial, Delivery: dl}
	switch {
	case t.reset:
		e.Type = Reset
	default:
		e.Type, e.Seq, e.Time = t.entry.Type, t.entry.Seq, t.entry.Time
		if t.added {
			e.Type = cache.Added
		}
		if e.Object, err = t.entry.Object(); err != nil {
			d.log.Error(err, "An entry cannot be told in full", "source", d.host.Store.Source().String(), "handler", d.name, "key", e.Key)
			if e.Type != cache.Deleted {
				return nil
			}
		}
		if e.Type == cache.Updated {
			e.Old = d.previous(t.entry)
		}
	}
	err = errPanicked
	defer utilruntime.HandleCrashWithLogger(d.log)
	return d.call(d.ctx, e)
}

// previous decodes the object before a change, when asked.
func (d *Handler) previous(e *boltstore.Entry) func() any {
	return func() any {
		old, err := e.Previous()
		if err != nil {
			d.log.Error(err, "The object before a change cannot be told", "source", d.host.Store.Source().String(), "handler", d.name, "key", e.Key)
		}
		return old
	}
}

// errPanicked is what a call returns that did not return, where panics do not
// end the process.
var errPanicked = errors.New("the handler panicked")

// returned notes how a call ended.
func (d *Handler) returned(dl *Delivery, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := dl.q
	q.busy = false
	d.queues.calls--
	if q.dropped {
		if d.queues.calls == 0 {
			d.host.Backlog.Wake()
		}
		return
	}
	q.told++
	switch {
	case err == nil:
		dl.t.acked = true
	case errors.Is(err, ErrAckLater):
	case d.ctx.Err() != nil: // told again by the next life
	default:
		d.log.V(2).Info("A durable handler failed, it will be told again", "source", d.host.Store.Source().String(), "handler", d.name, "key", q.key, "err", err)
		q.again = true
	}
	d.settle(q)
	d.checkSynced()
}

// end is an Ack or a Nack.
func (d *Handler) end(dl *Delivery, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	q := dl.q
	if q.dropped || dl.turn != q.turn || dl.t.acked {
		return // it is being told anew, or settled
	}
	if err != nil {
		q.again = true
	} else {
		dl.t.acked = true
	}
	d.settle(q)
}
