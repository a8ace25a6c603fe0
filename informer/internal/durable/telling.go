package durable

import (
	"context"
	"errors"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// Delivery is one telling of a task, which is acknowledged or refused.
type Delivery struct {
	s    *queues
	q    *keyQueue
	t    *task
	turn int // of the queue
}

// End acknowledges the task if err is nil, and refuses it otherwise. It has no effect if
// the key is already being told again, or the task is settled.
func (dl *Delivery) End(err error) { dl.s.end(dl, err) }

// Keep says that the task will not be acknowledged soon: when memory is full, its key can
// be moved to the file at once.
func (dl *Delivery) Keep() {
	dl.s.mu.Lock()
	defer dl.s.mu.Unlock()
	if dl.q.dropped || dl.turn != dl.q.turn || dl.t.acked || dl.t.kept && dl.q.kept {
		return
	}
	dl.t.kept, dl.q.kept = true, true
	dl.s.schedule(dl.q)
	dl.s.owner.kept(dl.q)
}

// work tells the tasks that are due until the handler ends.
func (s *queues) work() {
	for {
		s.mu.Lock()
		for len(s.due) == 0 && s.ctx.Err() == nil {
			s.ready.Wait()
		}
		if s.ctx.Err() != nil {
			s.mu.Unlock()
			return
		}
		q := s.due[0]
		s.due = s.due[1:]
		q.ready = false
		t := q.next()
		if t == nil || t.away() { // refused, or moved to the file, since it became due
			s.schedule(q)
			s.mu.Unlock()
			continue
		}
		q.busy = true
		s.calls++
		q.reached = max(q.reached, t.last)
		if q.told == 0 {
			q.since = s.host.Clock.Now()
		}
		attempt := q.failed + 1
		dl := &Delivery{s: s, q: q, t: t, turn: q.turn}
		s.mu.Unlock()
		err := s.tell(dl, attempt)
		s.returned(dl, err)
	}
}

// tell calls the handler. An entry that cannot be decoded is not told, except a delete, which
// is told without its object. Its source is degraded and will be relisted. If the handler
// ends the goroutine, the call has failed, and another goroutine takes its place.
func (s *queues) tell(dl *Delivery, attempt int) (err error) {
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
			s.log.Error(err, "An entry cannot be told in full", "source", s.host.Store.Source().String(), "handler", s.name, "key", e.Key)
			if e.Type != cache.Deleted {
				return nil
			}
		}
		if e.Type == cache.Updated {
			e.Old = s.previous(t.entry)
		}
	}
	exited := true
	defer func() {
		if exited {
			s.log.Error(errExited, "A durable handler will be told again", "source", s.host.Store.Source().String(), "handler", s.name, "key", e.Key)
			s.workers.Go(s.work)
			s.returned(dl, errExited)
		}
	}()
	err = errPanicked
	defer utilruntime.HandleCrashWithLogger(s.log, func(context.Context, any) { exited = false })
	err = s.call(s.ctx, e)
	exited = false
	return err
}

// errExited is the result of a call that did not return.
var errExited = errors.New("the handler has ended its goroutine (runtime.Goexit, t.FailNow)")

// previous returns a function that decodes the object before a change.
func (s *queues) previous(e *boltstore.Entry) func() any {
	return func() any {
		old, err := e.Previous()
		if err != nil {
			s.log.Error(err, "The object before a change cannot be told", "source", s.host.Store.Source().String(), "handler", s.name, "key", e.Key)
		}
		return old
	}
}

// errPanicked is the result of a call that panicked, if panics do not end the process.
var errPanicked = errors.New("the handler panicked")

// returned notes how a call ended.
func (s *queues) returned(dl *Delivery, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := dl.q
	q.busy = false
	s.calls--
	if q.dropped {
		if s.calls == 0 {
			s.host.Backlog.Wake()
		}
		return
	}
	q.told++
	switch {
	case err == nil:
		dl.t.acked = true
	case errors.Is(err, ErrAckLater):
	case s.ctx.Err() != nil: // told again by the next life
	default:
		s.failed(q, err)
	}
	s.takeAcked(q)
	if dl.t.kept { // before the call has returned
		s.owner.kept(q)
	}
	s.owner.returned()
}

// end is an Ack or a Nack.
func (s *queues) end(dl *Delivery, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := dl.q
	if q.dropped || dl.turn != q.turn || dl.t.acked {
		return // it is being told again, or settled
	}
	if err != nil {
		s.failed(q, err)
	} else {
		dl.t.acked = true
	}
	s.takeAcked(q)
}

// failed makes a key be told again. The caller holds the mutex.
func (s *queues) failed(q *keyQueue, err error) {
	s.log.V(2).Info("A durable handler failed, it will be told again", "source", s.host.Store.Source().String(), "handler", s.name, "key", q.key, "err", err)
	q.again = true
}
