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
func (s indexing) retryFailed() {
	if s.retrying || s.viewed || s.meta == nil || !s.failing(s.meta) || s.ending() {
		return
	}
	s.retrying = true
	s.retriers.Go(func() {
		for wait, done := firstReindex, false; !done && s.pause(wait); wait = min(2*wait, mostReindex) {
			if err := s.buildNow(s.indexSet().fns); err != nil && !errors.Is(err, ErrClosed) {
				s.db.log().Error(err, "An index could not be built in the file; it is tried again", "source", s.source.String())
				wait = min(wait, triedAgain/4) // so that DB.Err shows it until it is written
			}
			s.mu.Lock()
			done = !s.failing(s.meta)
			s.retrying = !done
			s.mu.Unlock()
		}
	})
}

// failing says whether a function of the program's indices has failed. The caller holds s.mu.
func (s indexing) failing(m *sourceMeta) bool {
	for name := range s.indexers.fns {
		if m.Indices[name].Failed > 0 {
			return true
		}
	}
	return false
}

// buildLater builds all missing indices, beside other work. It tries until it succeeds or
// the store is released. tried is closed once it has tried.
func (s indexing) buildLater() (tried <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	first := sync.OnceFunc(func() { close(ch) })
	if s.ending() {
		first()
		return ch
	}
	s.retriers.Go(func() {
		defer first()
		for wait := firstReindex; ; wait = min(2*wait, triedAgain/2) { // DB.Err shows it until then
			err := s.buildNow(s.indexSet().fns)
			first()
			if err == nil || errors.Is(err, ErrClosed) || !s.pause(wait) {
				return
			}
			s.db.log().Error(err, "An index could not be built in the file; it is tried again", "source", s.source.String())
		}
	})
	return ch
}

// buildVersioned builds the indices that have a version. The others are built beside other
// work: that is to be done at each start, and nothing else waits for it.
func (s indexing) buildVersioned(add cache.Indexers) error {
	m, now, later := s.metaNow(), cache.Indexers{}, cache.Indexers{}
	for name, fn := range add {
		switch {
		case s.built(m, name): // if its function has failed, retryFailed calls it again
		case s.unversioned(name, fn):
			later[name] = fn
		default:
			now[name] = fn
		}
	}
	if err := s.buildNow(now); err != nil || len(later) == 0 {
		return err
	}
	tried := s.buildLater()
	for name := range later {
		s.tried.Store(name, tried)
	}
	return nil
}

func (s indexing) buildNow(add cache.Indexers) error {
	s.indexLock.Lock()
	defer s.indexLock.Unlock() // also if an index function ends the goroutine
	return s.build(add)
}

// buildMissing builds the program's indices that are not complete in the file, beside
// other work.
func (s indexing) buildMissing() {
	m := s.metaNow()
	for name := range s.indexSet().fns {
		if !s.built(m, name) {
			s.buildLater()
			return
		}
	}
}

// pause waits. It returns false if the store is released or the file closed meanwhile.
func (s indexing) pause(d time.Duration) bool {
	timer := s.db.opts.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-s.ended:
		return false
	case <-s.db.whileOpen.ctx.Done():
		return false
	}
}
