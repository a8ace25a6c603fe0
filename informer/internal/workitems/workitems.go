// Package workitems notes which events wait for which items of work. An event is
// acknowledged once all items that it and earlier events of its key led to are done. Of each
// key only the last event is kept: its acknowledgement covers the earlier ones.
package workitems

import (
	"slices"
	"sync"
)

// Items are the items of work T that events with a key K wait for. A worker takes an item,
// works on it, and ends that. One worker at a time has an item.
type Items[K, T comparable] struct {
	mu     sync.Mutex
	events map[K]*Event[K, T]
	of     map[T][]*Event[K, T]
}

// Event is the last event of a key, with the work on it and on those before it.
type Event[K, T comparable] struct {
	key   K
	ack   func()
	once  bool
	open  bool // more items may come
	parts []part[T]
}

// part is the work on one item that an event waits for.
type part[T comparable] struct {
	item  T
	state state
}

type state int

const (
	waiting state = 1 << iota // for the item to be taken
	working                   // on the item
	again                     // done, and the item was asked for again
)

// New returns no items.
func New[K, T comparable]() *Items[K, T] {
	return &Items[K, T]{events: map[K]*Event[K, T]{}, of: map[T][]*Event[K, T]{}}
}

// Begin notes an event, whose items follow. It takes the place of the key's last event, whose
// items it waits for, too. once says that asking again does not hold up the event.
func (w *Items[K, T]) Begin(key K, once bool, ack func()) *Event[K, T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.events[key]
	if e == nil {
		e = &Event[K, T]{key: key}
		w.events[key] = e
	}
	e.once, e.ack, e.open = once, ack, true
	return e
}

// Expect notes that an event has led to an item. The item is added to the queue after that.
func (w *Items[K, T]) Expect(e *Event[K, T], item T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range e.parts {
		if e.parts[i].item == item {
			e.parts[i].state |= waiting
			return
		}
	}
	e.parts = append(e.parts, part[T]{item, waiting})
	w.of[item] = append(w.of[item], e)
}

// Close says that an event leads to no more items. It says whether nothing is left to do for
// it. The caller then acknowledges it; otherwise that is done later.
func (w *Items[K, T]) Close(e *Event[K, T]) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.open = false
	return w.over(e)
}

// over forgets an event for which nothing is left to do.
func (w *Items[K, T]) over(e *Event[K, T]) bool {
	if e.open || len(e.parts) > 0 {
		return false
	}
	if w.events[e.key] == e {
		delete(w.events, e.key)
	}
	return true
}

// Take notes that the work on an item begins. All that the worker reads from here on
// includes the events up to here.
func (w *Items[K, T]) Take(item T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.of[item] {
		for i := range e.parts {
			if e.parts[i].item == item {
				e.parts[i].state = working
			}
		}
	}
}

// End notes that the work on an item has ended. done says that the item was not asked for
// again. Events for which nothing is left to do are acknowledged.
func (w *Items[K, T]) End(item T, done bool) {
	var acks []func()
	w.mu.Lock()
	var left []*Event[K, T]
	for _, e := range w.of[item] {
		i := slices.IndexFunc(e.parts, func(p part[T]) bool { return p.item == item })
		p := &e.parts[i]
		if p.state&working != 0 {
			p.state &^= working
			if !done && !e.once {
				p.state |= again
			}
		}
		if p.state != 0 {
			left = append(left, e)
			continue
		}
		if e.parts = slices.Delete(e.parts, i, i+1); w.over(e) {
			acks = append(acks, e.ack)
		}
	}
	if len(left) > 0 {
		w.of[item] = left
	} else {
		delete(w.of, item)
	}
	w.mu.Unlock()
	for _, ack := range acks {
		ack()
	}
}

// Len is how many events wait.
func (w *Items[K, T]) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.events)
}
