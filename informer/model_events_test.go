package informer

import (
	"context"
	"maps"

	"k8s.io/client-go/tools/cache"
)

// HandleEvent is a call of a durable handler.
func (t *teller) HandleEvent(_ context.Context, e Event) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.called(nameOf(e)); err != nil {
		return err
	}
	if e.Reset {
		return t.reset()
	}
	t.judgeEvent(e)
	if t.mood == "fail" {
		return t.refuses(e) // and it has seen nothing
	}
	t.fresh[nameOf(e)], t.seqs[nameOf(e)] = true, e.Seq
	if t.mood == "later" {
		t.later = append(t.later, e)
		return ErrAckLater
	}
	t.accepts(e)
	return nil
}

// reset is a Reset, with which a name begins.
func (t *teller) reset() error {
	if t.begun && !t.again {
		t.fault("a Reset, and nothing was lost")
	}
	if t.mood == "fail" {
		return errUnwilling
	}
	t.begun, t.again, t.filled, t.owed, t.later = true, false, false, nil, nil
	clear(t.there)
	clear(t.last)
	clear(t.acked)
	clear(t.refused)
	clear(t.seqs)
	return nil
}

// judgeEvent compares an event with the handler's knowledge, which it changes unless the
// handler is about to refuse it.
func (t *teller) judgeEvent(e Event) {
	name := nameOf(e)
	if !t.begun {
		t.fault("%s is told before the Reset", name)
	}
	if acked, ok := t.acked[name]; ok && e.Seq <= acked {
		t.fault("%s at %d is told after %d was acknowledged: %q", name, e.Seq, acked, t.trace[name])
	}
	if t.fresh[name] && e.Seq < t.seqs[name] {
		t.fault("%s at %d after %d: %q", name, e.Seq, t.seqs[name], t.trace[name])
	}
	if len(e.Deleted) == 0 && e.Object == nil {
		t.fault("%s at %d tells nothing: %q", name, e.Seq, t.trace[name])
	}
	was := maps.Clone(t.there)
	for _, gone := range e.Deleted {
		o := t.objectOf(cache.Deleted, gone.Object)
		if o == nil {
			continue
		}
		t.note(cache.Deleted, o, nil, &e)
		// There may have been others after the first one, which may be acknowledged since.
		dropped := len(e.Deleted) >= mostDeletes-1
		if left := t.there[name]; dropped && left != nil && left.UID != o.UID {
			delete(t.last, left.UID) // it may not be told that this one has gone
		}
		t.judge(cache.Deleted, o, nil, e.Attempt > 1 || !t.fresh[name] || t.gone[o.UID] || dropped)
		if t.mood == "fail" {
			delete(t.there, name)
		} else {
			t.believe(cache.Deleted, o)
		}
	}
	if e.Object == nil {
		if o := t.there[name]; o != nil {
			t.fault("%s is gone, and the delete of %s was not told: %q", name, o.UID, t.trace[name])
		}
	} else if o := t.objectOf(cache.Updated, e.Object); o != nil {
		typ := cache.Updated
		if e.Old == nil {
			typ = cache.Added
		}
		t.note(typ, o, e.Old, &e)
		t.judge(typ, o, e.Old, false)
		if t.mood != "fail" {
			t.believe(typ, o)
		}
	}
	if t.mood == "fail" {
		t.there = was
	}
}

// mostDeletes is how many deletes of a key an event has at most.
const mostDeletes = 8
