package reflector

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// open opens a watch at the version up to which everything has been accepted. If the link
// was broken, it first asks the server for its version. It relists if the version has
// expired, if the server has gone back, or for another reason of reasonToRelist.
func (s *Reflector) open(ctx context.Context, timeoutSeconds *int64) (*watcher, error) {
	if s.status.get().Phase == PhaseStarting {
		s.enter(PhaseConnecting, "")
	}
	for {
		reason, listed, err := s.reasonToRelist(ctx)
		if err != nil {
			return nil, err
		}
		if reason != "" {
			switch err := s.relistBeforeWatch(ctx, reason); {
			case err == nil:
				listed = nil
			case s.postpone(ctx, reason):
				continue
			default:
				return nil, err
			}
		}
		if w, err := s.openWatch(ctx, timeoutSeconds, listed); w != nil || err != nil {
			return w, err
		}
	}
}

// openWatch opens the watch. It returns nil, without an error, if a relist must come
// first: the server has changed since it was asked, or the version has expired. A list that
// has answered the question is compared beside the watch.
func (s *Reflector) openWatch(ctx context.Context, timeoutSeconds *int64, listed *page) (
	opened *watcher, err error,
) {
	o, phase := s.watchOptions(timeoutSeconds)
	end := func() {}
	defer func() {
		if opened == nil {
			end()
		}
	}()
	if o.ResourceVersion == "" && s.facts.zero.Load() {
		o.ResourceVersion = "0"
	}
	var changed *changedSince
	if !s.proves(phase, listed) {
		s.proving.compare(false)
	} else {
		least, _ := s.queue.Target()
		changed = &changedSince{least: least}
		s.shorten(&o) // its bookmark reaches the list's version
		begun := make(chan struct{})
		defer close(begun)
		end = s.proveBeside(ctx, begun, changed, listed)
	}
	w, over, p, err := s.requests.watch(ctx, s.patience.get(), o)
	if p != nil {
		o.TimeoutSeconds = p.stated(o.TimeoutSeconds)
	}
	switch {
	case isExpired(err):
		s.doubtLink() // the request may have found another server
		s.link.expired()
		return nil, nil
	case err != nil:
		if mayBeOfVersion(err) {
			s.link.began(false)
		}
		return nil, s.fail(ctx, err)
	}
	if asked := s.cluster.stated().over(); phase == PhaseLive && over != asked {
		// The version was stated over another connection. If the server has been
		// restored since, this watch would be silent for ever. A short watch
		// would notice that by itself.
		if back, err := s.wentBack(ctx); back || err != nil {
			w.Stop()
			s.doubtLink()
			if err != nil {
				return nil, s.fail(ctx, err)
			}
			return nil, nil
		}
	}
	s.link.answers()
	s.status.resumed(func() uint64 { return s.store.State().Bytes })
	s.enter(phase, "")
	return s.watcher(w, p, o.TimeoutSeconds, changed, end), nil
}

// watchOptions returns the options of the watch that goes on from what has been accepted,
// and the phase of the source once it is open. A watch that catches up is a short one.
func (s *Reflector) watchOptions(timeoutSeconds *int64) (metav1.ListOptions, Phase) {
	o := metav1.ListOptions{ResourceVersion: s.queue.AcceptedVersion(), AllowWatchBookmarks: true,
		TimeoutSeconds: timeoutSeconds}
	phase := PhaseLive
	if !s.queue.Reached() {
		phase = PhaseCatchingUp
		s.shorten(&o)
	}
	return o, phase
}

// shorten makes a watch short enough to bring a bookmark soon, if that helps.
func (s *Reflector) shorten(o *metav1.ListOptions) {
	short := int64(s.o.confirmTimeout / time.Second)
	if !s.link.bookmarkless() && (o.TimeoutSeconds == nil || *o.TimeoutSeconds > short) {
		o.TimeoutSeconds = &short
	}
}

// reasonToRelist asks the server as far as needed. It returns the reason for a relist before
// a watch opens, "" if there is none, and the list that has answered, if one has.
func (s *Reflector) reasonToRelist(ctx context.Context) (reason string, listed *page, err error) {
	if reason = cmp.Or(s.unusable(), s.link.reason()); reason != "" {
		return reason, nil, nil
	}
	if !s.link.is(linkStated) || s.fresh.want() {
		if reason, listed, err = s.ask(ctx); reason != "" || err != nil {
			return reason, nil, err
		}
	}
	d, ok := s.auditIn()
	switch {
	case s.unstored.due():
		reason = ReasonUnstored
	case s.mustProve():
		reason = ReasonUnconfirmed
	case ok && d <= 0:
		reason = ReasonAudit
	}
	return reason, listed, nil
}

// auditIn is how long it is until an audit. ok says whether there will be one. No start
// waits for an audit: if it can, the watch first proves that nothing was missed.
func (s *Reflector) auditIn() (d time.Duration, ok bool) {
	if !s.queue.Reached() && !s.link.bookmarkless() {
		return 0, false
	}
	if d, ok = s.audit.in(); ok {
		d = max(d, s.pace.left()) // the watch goes on until then
	}
	return d, ok
}

// wantsProof says whether only a full list can confirm the state, and whether that is
// worth it: once in a life of the process, and for a caller that waits. It is not while the
// list that has answered the question may still confirm.
func (s *Reflector) wantsProof() bool {
	return !s.queue.Reached() && s.link.bookmarkless() && !s.proving.compares() &&
		(s.queue.Confirmed().IsZero() || s.fresh.want())
}

// mustProve says whether such a list is to be read now.
func (s *Reflector) mustProve() bool { return s.wantsProof() && s.proofIn() <= 0 }

// proofIn is how long such a list is put off, zero or less if it is not.
func (s *Reflector) proofIn() time.Duration {
	if !s.wantsProof() {
		return 0
	}
	return s.listIn()
}

// listIn is how long lists of everything are put off that the watch does not depend on:
// callers may ask for more of them than a server should send.
func (s *Reflector) listIn() time.Duration { return max(s.audit.putOff(), s.pace.left()) }

// postpone puts off a failed relist if the watch does not depend on it.
func (s *Reflector) postpone(ctx context.Context, reason string) bool {
	switch {
	case ctx.Err() != nil:
		return false
	case reason == ReasonUnstored:
		s.unstored.tried()
		return true
	case reason == ReasonAudit || reason == ReasonUnconfirmed:
		s.audit.postpone()
		return true
	case reason == ReasonUnreadable: // watches and lists fail by turns, and watches may work again
		return s.link.unlisted()
	}
	return false
}

// mayBeOfVersion says whether a server that has just answered a question may fail because of
// the version that the watch begins at, or of the first event after it. Then a list helps. A
// server that refuses the type, or asks the client to wait, fails at any version.
func mayBeOfVersion(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false // an error of the link
	}
	switch code := status.Status().Code; code {
	case 0, http.StatusBadRequest, http.StatusConflict, http.StatusUnprocessableEntity:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}

func isExpired(err error) bool {
	return err != nil && (apierrors.IsResourceExpired(err) || apierrors.IsGone(err))
}
