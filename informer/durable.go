package informer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/internal/durable"
)

// AddDurableHandler adds a handler whose position is in the file. Its name belongs to
// this source and must be the same in each life of the process. The handler is told each
// change until it has acknowledged it: at least once, and in order for each key, whatever
// ends the process. Collapsed changes are the exception (see below). Acknowledgements are
// written with the source's next commit, or within boltstore.Options.FlushInterval.
//
// A name that the file does not know is first told every object, as cache.Added,
// including those of the informer's first list. A restart goes on with that.
//
// If the changes of a key are collapsed, the handler is told the deletes of objects that
// it may know. Then it is told the present object, with the one that it last acknowledged
// as the old one. If the object changed while the handler was being shown all objects,
// the present one comes alone, as cache.Added. Changes are collapsed:
//   - behind an event that fails, or once 16 events of the key are unacknowledged;
//   - when the handler's memory is full and the key fails, or has gone
//     unacknowledged for 10 s;
//   - when the handler is behind and the journal exceeds
//     boltstore.Options.JournalBytes or JournalAge.
//
// The name stays registered, and everything that it needs is kept, until
// RemoveDurableHandler, even in a life of the process that does not add the handler.
func (inf *Informer) AddDurableHandler(name string, h DurableHandler, o DurableOptions) (cache.ResourceEventHandlerRegistration, error) {
	ended := func() error {
		return fmt.Errorf("informer: durable handler %q was not added because the informer has stopped already", name)
	}
	if inf.IsStopped() {
		return nil, ended()
	}
	// The name is written to the file. State and health checks must not wait for that.
	host := durable.Host{Store: inf.store, Backlog: inf.backlog, Clock: inf.o.clock, Page: inf.page, Synced: inf.syncedAt, Sharing: &inf.sharing}
	d, err := durable.New(host, name, func(ctx context.Context, t durable.Telling) error {
		if t.Type == cache.Deleted {
			t.Object = inf.named(t.Object)
		} else {
			inf.mutated.AddObject(t.Object)
		}
		return h.HandleEvent(ctx, eventOf(t))
	}, durable.Options{Workers: o.Workers, MaxPending: o.maxPending, PendingBytes: o.pendingBytes, StuckAfter: o.stuckAfter, RateLimiter: o.RateLimiter})
	if err != nil {
		return nil, err
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.stopped {
		return nil, errors.Join(ended(), d.Stop())
	}
	inf.durables[d] = h
	inf.sharing.Store(int32(len(inf.durables)))
	if inf.running != nil {
		d.Start(inf.running, &inf.telling)
	}
	return d, nil
}

// overGrace is how long a handler waits for the last calls of the one whose place it takes.
const overGrace = 10 * time.Second

// addNamed adds a durable handler in place of one of its name that is over. It adds one at a
// time: it finds the handler that has the name once that has been added as a whole.
func (inf *Informer) addNamed(h DurableEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	inf.naming.Lock()
	defer inf.naming.Unlock()
	reg, err := inf.AddDurableHandler(h.DurableName(), h, DurableOptions{})
	if !errors.Is(err, boltstore.ErrClaimed) {
		return reg, err
	}
	over := inf.over(h.DurableName())
	if over == nil {
		return nil, err
	}
	if err := inf.stopDurable(over); err != nil {
		return nil, err
	}
	select {
	case <-over.ShutdownChan():
	case <-inf.o.clock.After(overGrace):
		return nil, fmt.Errorf("informer: durable handler %q was not added: a call of the handler whose place it takes has not returned within %v; its HandleEvent must return when its context ends", h.DurableName(), overGrace)
	}
	return inf.AddDurableHandler(h.DurableName(), h, DurableOptions{})
}

// over returns the durable handler of that name if it is over, or nil.
func (inf *Informer) over(name string) *durable.Handler {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for d, h := range inf.durables {
		if h, ok := h.(interface{ DurableDone() <-chan struct{} }); ok && d.Name() == name && cache.IsDone(doneChecker{done: h.DurableDone()}) {
			return d
		}
	}
	return nil
}

// syncedAt says whether the informer has synced, and the last seq at that time.
func (inf *Informer) syncedAt() (seq uint64, ok bool) {
	select {
	case <-inf.synced:
		return inf.syncedSeq, true
	default:
		return 0, false
	}
}

// RemoveDurableHandler stops calling the handler and forgets its name and position. It
// does not wait for calls under way, whose answers no longer count. So the handler itself
// may call it. To wait, call cache.ShutDownEventHandler first. The name can be added
// again at once.
func (inf *Informer) RemoveDurableHandler(name string) error {
	inf.mu.Lock()
	var found *durable.Handler
	for d := range inf.durables {
		if d.Name() == name {
			found = d
		}
	}
	inf.mu.Unlock()
	if found == nil {
		return inf.store.RemoveHandler(name)
	}
	// If its position was not written, the removal makes that good, or says why it fails, too.
	if stopped := inf.stopDurable(found); stopped != nil {
		inf.store.Logger().V(2).Info("The position of a durable handler that is being removed was not written", "handler", name, "err", stopped)
	}
	return inf.store.RemoveHandler(name)
}

// stopDurable stops calling the handler; its name and position stay.
func (inf *Informer) stopDurable(d *durable.Handler) error {
	inf.mu.Lock()
	_, there := inf.durables[d]
	delete(inf.durables, d)
	inf.sharing.Store(int32(len(inf.durables)))
	inf.mu.Unlock()
	if !there {
		return nil
	}
	return d.Stop() // it may write to the file
}
