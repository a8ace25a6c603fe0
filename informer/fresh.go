package informer

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/kubewake/kubewake/reflector"
)

// errNotRunning is the error of waiting for an informer that does not run.
var errNotRunning = errors.New("informer: not running, nothing will become fresh")

// WaitForFresh returns nil once the server has confirmed the cache no longer than maxAge
// ago, and all of it can be read. Handlers may be told later. If necessary, the server is
// asked, as reflector.Confirm describes. The error is the context's, or it says that the
// informer does not run.
func (inf *Informer) WaitForFresh(ctx context.Context, maxAge time.Duration) error {
	src, err := inf.runningSource()
	if err != nil {
		return err
	}
	return src.WaitForFresh(ctx, maxAge)
}

// freshness is WaitForFresh for readers of the store. They do not wait for a server that
// is out of reach, or turns out to be.
func (inf *Informer) freshness(ctx context.Context, maxAge time.Duration) error {
	if err := inf.outOfReach(); err != nil {
		over, cancel := context.WithCancel(ctx)
		cancel()
		if inf.WaitForFresh(over, maxAge) == nil {
			return nil // nobody need be asked
		}
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fresh := make(chan error, 1)
	go func() { fresh <- inf.WaitForFresh(ctx, maxAge) }()
	for {
		changed := inf.phases.next()
		if err := inf.outOfReach(); err != nil {
			return err
		}
		select {
		case err := <-fresh:
			return err
		case <-changed:
		}
	}
}

// reached is freshness and WaitForVersion: after the server has confirmed the cache, its
// version then counts, even if no object of this type has changed since.
func (inf *Informer) reached(ctx context.Context, resourceVersion string) error {
	if err := inf.freshness(ctx, 0); err != nil {
		return err
	}
	return inf.WaitForVersion(ctx, resourceVersion)
}

// readableAge is how long ago the server confirmed what readers of the store can read.
func (inf *Informer) readableAge() (age time.Duration, ok bool) {
	src, err := inf.runningSource()
	if err != nil {
		return 0, false
	}
	return src.ReadableAge()
}

// outOfReach says why the server cannot be asked.
func (inf *Informer) outOfReach() error {
	switch st := inf.State(); st.Phase {
	case reflector.PhaseOffline, reflector.PhaseFailing, reflector.PhaseDenied, reflector.PhaseUnclaimed:
		return outOfReachError{st}
	}
	return nil
}

// outOfReachError says in what phase a source is, and why.
type outOfReachError struct{ reflector.State }

func (e outOfReachError) Error() string { return e.what() + e.State.String() }

// Brief is the error without the reason, which names the request that failed. So it is the
// same of all sources, and can be shown to anybody.
func (e outOfReachError) Brief() string { return e.what() + string(e.Phase) }

func (e outOfReachError) what() string {
	if e.Phase == reflector.PhaseDenied { // or it does not know the type
		return "the server refuses these objects: "
	}
	return "the server cannot be asked: "
}

// phases reports the source's changes of phase.
type phases struct {
	mu   sync.Mutex
	wait chan struct{}
}

// next is closed at the next change.
func (p *phases) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait == nil {
		p.wait = make(chan struct{})
	}
	return p.wait
}

func (p *phases) changed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.wait != nil {
		close(p.wait)
		p.wait = nil
	}
}

// then returns a function that tells phases and then calls fn, which may be nil.
func (p *phases) then(fn func(reflector.State)) func(reflector.State) {
	return func(st reflector.State) {
		p.changed()
		if fn != nil {
			fn(st)
		}
	}
}

// WaitForVersion returns nil once every change up to resourceVersion can be read. After a
// write, that is the version of the object that the server returned. WaitForVersion sends
// nothing. The error is the context's, or it says that the informer does not run, or that
// resourceVersion is no version (empty or 0).
func (inf *Informer) WaitForVersion(ctx context.Context, resourceVersion string) error {
	src, err := inf.runningSource()
	if err != nil {
		return err
	}
	return src.WaitForVersion(ctx, resourceVersion)
}

// Audit has all objects compared with a list soon, see reflector.Reflector.Audit. The error
// says that the informer does not run.
func (inf *Informer) Audit() error {
	src, err := inf.runningSource()
	if err == nil {
		src.Audit()
	}
	return err
}

func (inf *Informer) runningSource() (*reflector.Reflector, error) {
	inf.mu.Lock()
	defer inf.mu.Unlock()
	if inf.source == nil || inf.stopped {
		return nil, errNotRunning
	}
	return inf.source, nil
}
