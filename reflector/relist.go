package reflector

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
)

// listError is the error of a relist.
type listError struct{ error }

func (e listError) Unwrap() error { return e.error }

// relistBeforeWatch reads a list. Relists that follow one another have a backoff of their own.
func (s *Reflector) relistBeforeWatch(ctx context.Context, reason string) error {
	if reason == s.unusable() && reason != ReasonFirst {
		s.log.Info("Everything is read from the server, since the file's objects cannot be used",
			"source", s.store.Source().String(), "reason", reason)
	}
	if reason != ReasonUnstored { // this reason has waits of its own
		if err := s.pace.wait(ctx); err != nil {
			return err
		}
		if s.status.hasRelisted() { // the first list of a life makes none wait
			defer s.pace.ended()
		}
	}
	if err := s.relist(ctx, reason); err != nil {
		return listError{err}
	}
	return nil
}

// relist reads everything, page by page, into the file.
func (s *Reflector) relist(ctx context.Context, reason string) error {
	t := &turn{store: s.store}
	if err := t.take(ctx); err != nil {
		return err
	}
	defer t.leave()
	if s.link.owesNote() {
		s.restored() // a full disk may not have taken the note, or kept pages that are void
	}
	switch other, err := s.otherCluster(ctx); {
	case err != nil:
		return err
	case other:
		reason = ReasonCluster
	}
	l, err := s.readAll(ctx, reason, t)
	if err != nil {
		return err
	}
	s.link.relisted()
	s.proving.reached()
	s.proving.compare(false)
	s.audit.compared()
	switch r := l.relist; {
	case l.reason == ReasonDiffers:
		s.noteFiltered(r.Changed == 0 && r.Deleted == 0)
	case l.reason == ReasonAudit: // the program may have another list function by now
		s.noteFiltered(false)
	}
	s.unstored.tried()
	s.status.relisted(l.reason, s.clock.Now())
	r := l.relist
	s.log.V(1).Info("Relisted", "source", s.store.Source().String(), "reason", l.reason, "resourceVersion",
		s.queue.AcceptedVersion(),
		"objects", r.Objects, "changed", r.Changed, "deleted", r.Deleted)
	return nil
}

// noteFiltered notes whether the caller's list function shows something else than the server.
func (s *Reflector) noteFiltered(filtered bool) {
	if err := s.store.Upstream.WriteFacts(func(f *listing.Facts) { f.Filtered = filtered }); err != nil {
		s.log.V(1).Info("It could not be noted whether lists of metadata are of use",
			"source", s.store.Source().String(), "err", err)
	}
}

// pace makes a relist wait if it follows soon after another one.
type pace struct {
	clock clock.Clock

	mu      sync.Mutex
	backoff wait.Backoff
	last    time.Time     // when the last relist before a watch ended
	next    time.Duration // how long the next one waits
}

// wait waits until a relist may begin.
func (p *pace) wait(ctx context.Context) error {
	if d := p.left(); d > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.clock.After(d):
		}
	}
	return nil
}

// rested says whether the last relist was long ago. It needs mu.
func (p *pace) rested() bool { return p.clock.Since(p.last) > backoffReset }

// left is how long a relist has to wait after the last one, zero or less if it need not.
func (p *pace) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rested() {
		return 0
	}
	return p.next - p.clock.Since(p.last)
}

// ended: the next relist's wait begins now.
func (p *pace) ended() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.rested() {
		p.backoff = newBackoff()
	}
	p.last, p.next = p.clock.Now(), p.backoff.Step()
}

// newBackoff is the backoff of client-go's Reflector.
func newBackoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 38, Cap: 30 * time.Second}
}

// turn is one of the few turns to relist that the file gives out.
type turn struct {
	store *boltstore.Claimed
	done  func() // nil: it is not taken
}

func (t *turn) take(ctx context.Context) (err error) {
	t.done, err = t.store.Upstream.WaitForTurn(ctx)
	return err
}

func (t *turn) leave() {
	if t.done != nil {
		t.done()
		t.done = nil
	}
}
