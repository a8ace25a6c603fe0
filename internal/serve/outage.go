package serve

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// pause is how long the server is not asked about callers after it could not be reached.
	pause = 2 * time.Second
	// longPause is how long nothing is sent to it after a request that waited in vain. If
	// requests fail at once, each one is tried.
	longPause = 10 * time.Second
)

// outage remembers that the server could not be reached.
type outage struct {
	clock clock.PassiveClock
	slow  time.Duration // a request that took it has waited

	mu   sync.Mutex
	err  error
	at   time.Time
	long bool
}

// failed notes that a request, sent at the given time, has not reached the server.
func (o *outage) failed(began time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err, o.at = err, o.clock.Now()
	o.long = o.at.Sub(began) >= o.slow
}

// waited is failed for a request that waited in vain. It notes nothing if the request
// failed at once.
func (o *outage) waited(began time.Time, err error) {
	if o.clock.Since(began) >= o.slow {
		o.failed(began, err)
	}
}

// reached notes that a request has reached it.
func (o *outage) reached() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.err = nil
}

// resting returns why callers' rights need not be asked for now.
func (o *outage) resting() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && o.clock.Since(o.at) < pause {
		return o.err
	}
	return o.waiting()
}

// silent returns why nothing need be sent now, and until when.
func (o *outage) silent() (until time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.at.Add(longPause), o.waiting()
}

// waiting needs mu.
func (o *outage) waiting() error {
	if o.long && o.clock.Since(o.at) < longPause {
		return o.err
	}
	return nil
}
