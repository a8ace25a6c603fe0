package reflector

import (
	"time"

	"k8s.io/utils/clock"
)

// What a list or the watch has brought and could not be stored is listed again,
// at once in a new life, which has other functions perhaps, and with waits that
// double from there on: nothing tells when a function will succeed. The relist
// takes none of these objects for unchanged; of others it asks for no more than
// any does.

// mostAgain is how long at most.
const mostAgain = 10 * time.Minute

// retryAgain says when. The zero value is for a new life: at once.
type retryAgain struct {
	wait time.Duration // that has passed before the last try, 0 if there was none
	at   time.Time     // of the next one; zero: now
	idle bool          // there is nothing to be listed for
}

// againIn is how long it is until everything is to be listed for what could not
// be stored, due whether there is any.
func (s *ListerWatcher) againIn() (d time.Duration, due bool) {
	_, failed := s.queue.Failed()
	none := s.store.UnstoredObjects() == 0
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.again
	now := s.o.Clock.Now()
	switch {
	case none && failed == nil:
		*a = retryAgain{idle: true}
		return 0, false
	case a.idle: // the first one of a life that goes on
		*a = retryAgain{wait: s.o.RetryUnstored, at: now.Add(s.o.RetryUnstored)}
	}
	return max(a.at.Sub(now), 0), true
}

// mustReadAgain says whether it is time to.
func (s *ListerWatcher) mustReadAgain() bool {
	d, due := s.againIn()
	return due && d == 0 && s.store.UnstoredObjects() > 0
}

// triedAgain notes that everything has been listed, or could not be.
func (s *ListerWatcher) triedAgain() {
	if s.store.UnstoredObjects() == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := &s.again
	a.idle = false
	a.wait = min(max(2*a.wait, s.o.RetryUnstored), mostAgain)
	a.at = s.o.Clock.Now().Add(a.wait)
}

// clockTimer is a timer that need not run.
type clockTimer struct {
	C   <-chan time.Time // nil: it does not
	clk clock.Clock
	t   clock.Timer
}

func (t *clockTimer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
	t.C, t.t = nil, nil
}

// reset has it run for that long, if it is to run.
func (t *clockTimer) reset(d time.Duration, run bool) {
	t.stop()
	if run {
		t.t = t.clk.NewTimer(d)
		t.C = t.t.C()
	}
}
