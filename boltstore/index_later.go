package boltstore

import (
	"errors"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

// This file has what builds indices beside other work.

// Failed index functions are called again after a wait, which doubles as long as any of
// them fails.
const (
	firstReindex = time.Second
	mostReindex  = 10 * time.Minute
)

// retryFailed starts a goroutine that builds the indices again whose functions have failed,
// until none fails or the store is released. The caller holds s.mu.
func (b *builder) retryFailed() {
	if b.retrying || b.s.life.viewed || b.s.meta == nil || !b.s.indices.failing(b.s.meta) || b.s.ending() {
		return
	}
	b.retrying = true
	b.s.life.goroutines.Go(func() {
		for wait, done := firstReindex, false; !done && b.pause(wait); wait = min(2*wait, mostReindex) {
			if err := b.now(b.s.indices.set().fns); err != nil && !errors.Is(err, ErrClosed) {
				b.s.db.log().Error(err, "An index could not be built in the file; it is tried again", "source",
					b.s.name.String())
				wait = min(wait, triedAgain/4) // so that DB.Err shows it until it is written
			}
			b.s.mu.Lock()
			done = !b.s.indices.failing(b.s.meta)
			b.retrying = !done
			b.s.mu.Unlock()
		}
	})
}

// failing says whether a function of the program's indices has failed. The caller holds s.mu.
func (x *indices) failing(m *sourceMeta) bool {
	for name := range x.indexers.fns {
		if m.Indices[name].Failed > 0 {
			return true
		}
	}
	return false
}

// later builds all missing indices, beside other work. It tries until it succeeds or
// the store is released. tried is closed once it has tried.
func (b *builder) later() (tried <-chan struct{}) {
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	ch := make(chan struct{})
	first := sync.OnceFunc(func() { close(ch) })
	if b.s.ending() {
		first()
		return ch
	}
	b.s.life.goroutines.Go(func() {
		defer first()
		for wait := firstReindex; ; wait = min(2*wait, triedAgain/2) { // DB.Err shows it until then
			err := b.now(b.s.indices.set().fns)
			first()
			if err == nil || errors.Is(err, ErrClosed) || !b.pause(wait) {
				return
			}
			b.s.db.log().Error(err, "An index could not be built in the file; it is tried again", "source",
				b.s.name.String())
		}
	})
	return ch
}

// buildVersioned builds the indices that have a version. The others are built beside other
// work: that is to be done at each start, and nothing else waits for it.
func (b *builder) buildVersioned(add cache.Indexers) error {
	m, now, later := b.s.metaNow(), cache.Indexers{}, cache.Indexers{}
	for name, fn := range add {
		switch {
		case b.s.indices.built(m, name): // if its function has failed, retryFailed calls it again
		case b.s.indices.unversioned(name, fn):
			later[name] = fn
		default:
			now[name] = fn
		}
	}
	if err := b.now(now); err != nil || len(later) == 0 {
		return err
	}
	tried := b.later()
	for name := range later {
		b.tried.Store(name, tried)
	}
	return nil
}

func (b *builder) now(add cache.Indexers) error {
	b.building.Lock()
	defer b.building.Unlock() // also if an index function ends the goroutine
	return b.build(add)
}

// missing builds the program's indices that are not complete in the file, beside
// other work.
func (b *builder) missing() {
	m := b.s.metaNow()
	for name := range b.s.indices.set().fns {
		if !b.s.indices.built(m, name) {
			b.later()
			return
		}
	}
}

// pause waits. It returns false if the store is released or the file closed meanwhile.
func (b *builder) pause(d time.Duration) bool {
	timer := b.s.db.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-b.s.life.ended:
		return false
	case <-b.s.db.whileOpen.ctx.Done():
		return false
	}
}
