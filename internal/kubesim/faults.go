package kubesim

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// restartWrites is how far the revision moves over a restart. A starting API server
// writes its own leases and endpoints, so even an idle type's watches are too old
// afterwards.
const restartWrites = 5

// faults are the faults that are scripted at the moment, guarded by Server.mu.
type faults struct {
	rules        []*failRule
	initializing int           // requests that still get 429
	refusing     bool          // no listener
	outages      int           // how often refusing was set or reset
	stalled      chan struct{} // closed when the stall ends; nil if there is none
	bandwidth    int           // bytes a second; 0 is no limit
	linkFree     time.Time     // when the link will have carried what was sent
}

type failRule struct {
	match func(*http.Request) bool
	left  int
	with  http.HandlerFunc
}

// streamEnd says how a running request is ended from outside.
type streamEnd struct {
	mute   bool           // nothing more comes, and the connection stays open
	abort  bool           // the connection breaks
	status *metav1.Status // otherwise a watch sends this as ERROR, if set, and ends
}

// RestartOptions say what clients meet between the end of one server process and the
// readiness of the next.
type RestartOptions struct {
	// Down is how long, on the server's clock, connections are refused.
	Down time.Duration
	// Hold refuses connections until Resume is called.
	Hold bool
	// Initializing is how many requests for objects get 429 "storage is
	// (re)initializing" once connections are accepted.
	Initializing int
}

// Restart is the end of the server process and the start of another on the
// same state and address. Every connection closes, and every watch from an
// earlier version gets 410. Continue tokens stay valid.
func (s *Server) Restart(o RestartOptions) error {
	s.mu.Lock()
	s.rev += restartWrites
	s.dropWindows()
	s.faults.initializing = o.Initializing
	s.faults.refusing = true
	s.faults.outages++
	outage := s.faults.outages
	s.endStreams(streamEnd{abort: true})
	s.mu.Unlock()
	s.hangUp(true)
	switch {
	case o.Hold:
		return nil
	case o.Down > 0:
		s.resumeAfter(o.Down, outage)
		return nil
	default:
		return s.Resume()
	}
}

// Resume accepts connections again, after Restart with Hold or
// RefuseConnections.
func (s *Server) Resume() error { return s.RefuseConnections(false) }

// RefuseConnections closes the listener and every connection, so that the
// operating system refuses new ones, or listens again at the same address.
// In a Server used as a http.Handler only, requests are aborted instead.
func (s *Server) RefuseConnections(refuse bool) error {
	s.mu.Lock()
	s.faults.refusing = refuse
	s.faults.outages++
	if refuse {
		s.endStreams(streamEnd{abort: true})
	}
	s.mu.Unlock()
	if refuse {
		s.hangUp(true)
		return nil
	}
	s.netMu.Lock()
	addr := s.addr
	s.netMu.Unlock()
	if addr == "" {
		return nil
	}
	return s.listen(addr)
}

// resumeAfter ends the given outage later, unless another follows it first.
func (s *Server) resumeAfter(d time.Duration, outage int) {
	if s.enter() == nil {
		return
	}
	timer := s.clock.NewTimer(d)
	go func() {
		defer s.serving.Done()
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-s.closing:
			return
		}
		s.mu.Lock()
		same := s.faults.outages == outage
		s.mu.Unlock()
		if !same {
			return
		}
		if err := s.Resume(); err != nil {
			s.log.Error("resume", "err", err)
		}
	}()
}

// Compact forgets the past as etcd's compaction and a full watch cache do:
// watches from before the present revision, old lists and continue tokens get
// 410. Watches that run and Rewind are not affected.
func (s *Server) Compact() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropWindows()
	s.listable = s.rev
}

// CompactLists is Compact for old lists and continue tokens only: etcd forgets
// what the watch cache of a type that hardly changes still has.
func (s *Server) CompactLists() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listable = s.rev
}

// Rewind restores state and revision of an earlier moment, as etcd does from a
// snapshot: later writes are gone, and revisions will be given out again. Every
// connection closes. It fails if rv is in the future or beyond HistorySize.
func (s *Server) Rewind(rv uint64) error {
	s.mu.Lock()
	if rv > s.rev || rv < s.compacted {
		defer s.mu.Unlock()
		return fmt.Errorf("kubesim: rewind to %d: only %d to %d are known", rv, s.compacted, s.rev)
	}
	s.truncate(rv)
	s.listable = min(s.listable, rv)
	s.endStreams(streamEnd{abort: true})
	s.mu.Unlock()
	s.hangUp(false)
	return nil
}

// Recreate puts another cluster at the same address. It has no objects of the one
// before and other UIDs, and its revisions begin after rv. Every connection closes.
func (s *Server) Recreate(rv uint64) error {
	s.mu.Lock()
	err := s.found(rv)
	s.endStreams(streamEnd{abort: true})
	s.mu.Unlock()
	s.hangUp(false)
	return err
}

// DropConnections closes every connection, as a network fault does.
func (s *Server) DropConnections() {
	s.mu.Lock()
	s.endStreams(streamEnd{abort: true})
	s.mu.Unlock()
	s.hangUp(false)
}

// Mute makes every running watch fall silent: its connection stays open and nothing more
// comes over it, as if a box in between had forgotten it. Later requests are answered.
func (s *Server) Mute() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endStreams(streamEnd{mute: true})
}

// EndWatches ends every running watch in good order, as a timeout does. If
// status is set each sends it first as an ERROR event.
func (s *Server) EndWatches(status *apierrors.StatusError) {
	var end streamEnd
	if status != nil {
		end.status = &status.ErrStatus
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endStreams(end)
}

// Stall stops every answer where it is, watches included, or makes them go on.
// Connections stay open and are accepted.
func (s *Server) Stall(stall bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ch := s.faults.stalled; {
	case stall && ch == nil:
		s.faults.stalled = make(chan struct{})
	case !stall && ch != nil:
		close(ch)
		s.faults.stalled = nil
	}
}

// SetBandwidth makes the link to all clients slow: their answers' bodies share
// so many bytes a second. 0 is no limit.
func (s *Server) SetBandwidth(bytesPerSecond int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.bandwidth, s.faults.linkFree = bytesPerSecond, time.Time{}
}

// pace waits until the link has carried n more bytes.
func (s *Server) pace(ctx context.Context, n int) {
	s.mu.Lock()
	if s.faults.bandwidth == 0 {
		s.mu.Unlock()
		return
	}
	now := s.clock.Now()
	if s.faults.linkFree.Before(now) {
		s.faults.linkFree = now
	}
	s.faults.linkFree = s.faults.linkFree.Add(time.Duration(n) * time.Second / time.Duration(s.faults.bandwidth))
	timer := s.clock.NewTimer(s.faults.linkFree.Sub(now))
	s.mu.Unlock()
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
		panic(http.ErrAbortHandler)
	case <-s.closing:
		panic(http.ErrAbortHandler)
	}
}

// FailNext makes with answer the next requests that match, as many as times. A nil
// match matches every request. A nil with closes the connection without an answer.
// Rules are tried in the order in which they were added.
func (s *Server) FailNext(match func(*http.Request) bool, times int, with http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults.rules = append(s.faults.rules, &failRule{match, times, with})
}

// Answer returns a handler for FailNext that answers err in JSON.
func Answer(err *apierrors.StatusError) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { kubeapi.WriteStatus(w, err) }
}

// endStreams ends the requests that run. It needs s.mu.
func (s *Server) endStreams(end streamEnd) {
	s.streams.end = end
	close(s.streams.done)
	s.streams = &generation{done: make(chan struct{})}
}

// fault applies the scripted faults to a request before it is routed, and reports whether
// they answered it.
func (s *Server) fault(w http.ResponseWriter, r *http.Request, objects bool) bool {
	s.mu.Lock()
	if s.faults.refusing {
		s.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	for i, rule := range s.faults.rules {
		if rule.match != nil && !rule.match(r) {
			continue
		}
		if rule.left--; rule.left <= 0 {
			s.faults.rules = slices.Delete(s.faults.rules, i, i+1)
		}
		s.mu.Unlock()
		if rule.with == nil {
			panic(http.ErrAbortHandler)
		}
		rule.with(w, r)
		return true
	}
	initializing := objects && s.faults.initializing > 0
	if initializing {
		s.faults.initializing--
	}
	s.mu.Unlock()
	if initializing {
		kubeapi.WriteStatus(w, apierrors.NewTooManyRequests("storage is (re)initializing", 1))
	}
	return initializing
}

// waitStall returns when no stall is on. It aborts the request if the client leaves
// first, or the connection must break.
func (s *Server) waitStall(ctx context.Context, gen *generation) {
	for {
		s.mu.Lock()
		stalled := s.faults.stalled
		s.mu.Unlock()
		if stalled == nil {
			return
		}
		select {
		case <-stalled:
		case <-ctx.Done():
			panic(http.ErrAbortHandler)
		case <-gen.done:
			// A watch that was ended in order also ends here: its peer is stalled and
			// cannot tell.
			panic(http.ErrAbortHandler)
		}
	}
}
