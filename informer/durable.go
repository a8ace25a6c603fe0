package informer

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// AddDurableHandler adds a handler whose pending keys are in the file. Its name belongs to
// this source and must be the same in each life of the process. The commit that changes an
// object makes its key pending. The handler is told a pending key until it has acknowledged
// it, whatever ends the process: at least once, with all deletes and the present object, but
// not each version between. Acknowledgements are written with the source's next commit, or
// within boltstore.Options.FlushInterval.
//
// A name that the file does not know is first told a Reset, and then every object, including
// those of the informer's first list. A restart goes on with that. The same follows if another
// cluster answers, or if the file has lost what the handler must be told.
//
// Of each key at most eight unacknowledged deletes are kept, the first one and the last ones.
// So the pending keys take no more of the file than that, however long a handler fails. In
// memory, keys that were told and not acknowledged take some hundred bytes each.
//
// The name stays registered, and its keys become pending, until RemoveDurableHandler, even in
// a life of the process that does not add the handler (see boltstore.Options.HandlerAge).
func (inf *Informer) AddDurableHandler(name string, h DurableHandler, o DurableOptions) (
	cache.ResourceEventHandlerRegistration, error,
) {
	ended := func() error {
		return fmt.Errorf("informer: durable handler %q was not added because the informer has stopped already", name)
	}
	if inf.IsStopped() {
		return nil, ended()
	}
	// The name is written to the file. State and health checks must not wait for that.
	d, err := newDurableHandler(inf, name, h, o)
	if err != nil {
		return nil, err
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.stopped {
		return nil, errors.Join(ended(), d.stop())
	}
	inf.durables[d] = struct{}{}
	if inf.running != nil {
		d.start(inf.running, &inf.telling)
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
		return nil, fmt.Errorf("informer: durable handler %q was not added: a call of the handler whose "+
			"place it takes "+
			"has not returned within %v; its HandleEvent must return when its context ends", h.DurableName(), overGrace)
	}
	return inf.AddDurableHandler(h.DurableName(), h, DurableOptions{})
}

// over returns the durable handler of that name if it is over, or nil.
func (inf *Informer) over(name string) *durableHandler {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for d := range inf.durables {
		h, ok := d.handler.(interface{ DurableDone() <-chan struct{} })
		if ok && d.name == name && cache.IsDone(doneChecker{done: h.DurableDone()}) {
			return d
		}
	}
	return nil
}

// RemoveDurableHandler stops calling the handler and forgets its name and pending keys. It
// does not wait for calls under way, whose answers no longer count. So the handler itself
// may call it. To wait, call cache.ShutDownEventHandler first. The name can be added
// again at once.
func (inf *Informer) RemoveDurableHandler(name string) error {
	inf.mu.Lock()
	var found *durableHandler
	for d := range inf.durables {
		if d.name == name {
			found = d
		}
	}
	inf.mu.Unlock()
	if found == nil {
		return inf.store.Delivery.Remove(name)
	}
	// If its acknowledgements were not written, the removal makes that good, or says why it fails, too.
	if stopped := inf.stopDurable(found); stopped != nil {
		inf.store.Logger().V(2).Info("The acknowledgements of a durable handler that is being removed were not written",
			"handler", name, "err", stopped)
	}
	return inf.store.Delivery.Remove(name)
}

// stopDurable stops calling the handler; its name and pending keys stay.
func (inf *Informer) stopDurable(d *durableHandler) error {
	inf.mu.Lock()
	_, there := inf.durables[d]
	delete(inf.durables, d)
	inf.mu.Unlock()
	if !there {
		return nil
	}
	return d.stop() // it may write to the file
}
