package informer

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/tools/cache"
)

// minimumResyncPeriod is client-go's.
const minimumResyncPeriod = time.Second

// AddEventHandler adds a handler, before or after the start.
func (inf *Informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return inf.AddEventHandlerWithOptions(h, cache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod adds a handler with a resync period of its own.
func (inf *Informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, period time.Duration) (
	cache.ResourceEventHandlerRegistration, error,
) {
	return inf.AddEventHandlerWithOptions(h, cache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions adds a handler. It is first told the deletes of objects that
// an earlier life knew, above the told mark with which this life of the process began.
// Then it is told an Add for each object. A [DurableEventHandler] becomes a durable
// handler.
func (inf *Informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, o cache.HandlerOptions) (
	cache.ResourceEventHandlerRegistration, error,
) {
	if d, ok := h.(DurableEventHandler); ok {
		return inf.addNamed(d)
	}
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.stopped {
		return nil, fmt.Errorf("handler %v was not added to shared informer because it has stopped already", h)
	}
	l := &listener{
		inf: inf, handler: h, log: inf.store.Logger(), ended: make(chan struct{}), synced: make(chan struct{}),
		known: inf.known, joined: inf.store.State().Seq, owed: inf.toldNow, replay: walk{active: true},
		resyncs: resyncs{requested: inf.o.ResyncPeriod},
	}
	if o.Logger != nil {
		l.log = *o.Logger
	}
	if o.ResyncPeriod != nil {
		l.resyncs.requested = *o.ResyncPeriod
	}
	inf.agreeOnResync(l)
	l.resyncs.next = inf.o.clock.Now().Add(l.resyncs.period)
	l.cursor.Store(inf.toldAtStart)
	inf.listeners[l] = struct{}{}
	inf.handlerCame()
	inf.store.Delivery.AddsPlain()
	if inf.running != nil {
		inf.listenLocked(l)
	}
	return l, nil
}

// agreeOnResync settles the resync periods as client-go does. Before the start the
// shortest period asked for is the informer's own. After it no handler's period is
// shorter than that.
func (inf *Informer) agreeOnResync(l *listener) {
	if l.resyncs.requested > 0 && l.resyncs.requested < minimumResyncPeriod {
		l.log.Info("Warning: the handler's resync period is too short, it becomes the shortest that there is",
			"source", inf.store.Source().String(),
			"resyncPeriod", l.resyncs.requested, "shortest", minimumResyncPeriod)
		l.resyncs.requested = minimumResyncPeriod
	}
	if l.resyncs.requested > 0 && l.resyncs.requested < inf.resyncCheck {
		if inf.started {
			l.log.Info("Warning: the handler's resync period is shorter than the informer's, which has started, it "+
				"becomes the informer's", "source", inf.store.Source().String(),
				"resyncPeriod", l.resyncs.requested, "informer", inf.resyncCheck)
			l.resyncs.requested = inf.resyncCheck
		} else {
			inf.resyncCheck = l.resyncs.requested
		}
	}
	if l.resyncs.period = inf.period(l.resyncs.requested); l.resyncs.requested != 0 && l.resyncs.period == 0 {
		l.log.Info("Warning: the handler is not told everything again, since the informer has no resync period",
			"source", inf.store.Source().String(), "resyncPeriod", l.resyncs.requested)
	}
	for other := range inf.listeners {
		other.mu.Lock()
		other.resyncs.period = inf.period(other.resyncs.requested)
		other.mu.Unlock()
	}
}

func (inf *Informer) period(requested time.Duration) time.Duration {
	if requested == 0 || inf.resyncCheck == 0 {
		return 0
	}
	return max(requested, inf.resyncCheck)
}

// shouldResync asks each handler whether a resync is due for it.
func (inf *Informer) shouldResync() bool {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	now := inf.o.clock.Now()
	due := false
	for l := range inf.listeners {
		l.mu.Lock()
		if l.resyncs.period > 0 && !now.Before(l.resyncs.next) {
			l.resyncs.next = now.Add(l.resyncs.period)
			l.resyncs.wanted = true
			due = true
		}
		l.mu.Unlock()
	}
	return due
}

// resync starts the resyncs that shouldResync found due.
func (inf *Informer) resync() {
	inf.mu.Lock()
	for l := range inf.listeners {
		l.mu.Lock()
		l.resyncs.due = l.resyncs.due || l.resyncs.wanted
		l.resyncs.wanted = false
		l.mu.Unlock()
	}
	inf.mu.Unlock()
	inf.backlog.Wake()
}

// replayAgain shows all handlers the objects in the file, which has been filled from
// nothing.
func (inf *Informer) replayAgain() {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	for l := range inf.listeners {
		l.mu.Lock()
		l.replayDue = true
		l.mu.Unlock()
	}
}

// RemoveEventHandler stops calling a handler. It does not wait for a call under way;
// cache.ShutDownEventHandler does. The next life of the process tells the changes that
// the handler was not told, unless this life goes on without a handler for the grace of
// 30 s. A durable handler's name and pending keys stay in the file; RemoveDurableHandler also
// removes them. As in client-go, a handler of another informer is left alone.
func (inf *Informer) RemoveEventHandler(handle cache.ResourceEventHandlerRegistration) error {
	switch l := handle.(type) {
	case *durableHandler:
		return inf.stopDurable(l)
	case *listener:
		inf.mu.Lock()
		defer inf.mu.Unlock()
		if _, there := inf.listeners[l]; !there {
			return nil
		}
		delete(inf.listeners, l)
		inf.holdFor(l)
		if l.stop == nil {
			close(l.ended) // never started
			return nil
		}
		l.stop()
		return nil
	}
	return fmt.Errorf("informer: remove handler: a %T was not returned by AddEventHandler", handle)
}

// listen starts the handlers that were added before the start.
func (inf *Informer) listen(ctx context.Context) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	inf.running = ctx
	for l := range inf.listeners {
		inf.listenLocked(l)
	}
	for d := range inf.durables {
		d.start(inf.running, &inf.telling)
	}
}

func (inf *Informer) listenLocked(l *listener) {
	var cancel context.CancelFunc
	l.gone, cancel = context.WithCancel(inf.running)
	l.stop = func() { cancel(); go inf.backlog.Wake() }
	inf.backlog.Needs(l, l.cursor.Load()+1)
	inf.telling.Go(l.run)
}
