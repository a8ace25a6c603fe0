package reflector

import (
	"context"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/versions"
)

// watcher follows an open watch, until its server, its reader or a reason to ask or to list
// ends it. It is one type because each event may end the watch for any of its reasons.
type watcher struct {
	s     *Reflector
	inner watch.Interface
	p     *pulse    // counts its bytes; nil if they cannot be seen
	until time.Time // when the server should end it
	quiet time.Duration
	short bool   // it should bring the bookmark that confirms
	late  bool   // it has not brought the stated version yet
	from  string // newest version that had been accepted when it began
	moved bool   // something has come
	newer bool   // something newer than from has come
	wrong bool   // the last thing that came was an error
	began time.Time
	// changed is what it has brought since a list was asked for; nil without one. proved
	// ends the comparison with that list.
	changed *changedSince
	proved  func()

	// The rest is follow's.
	damaged <-chan struct{}
	last    time.Time   // when the last event was passed on
	seen    int64       // bytes that had come by then
	alarm   clock.Timer // the watch has been quiet for long
	audit   clockTimer  // a list is due
	again   clockTimer  // unstored objects are to be listed
}

// watcher returns one over a watch that was opened.
func (s *Reflector) watcher(
	inner watch.Interface, p *pulse, timeoutSeconds *int64, changed *changedSince, proved func(),
) *watcher {
	w := &watcher{s: s, inner: inner, p: p, changed: changed, proved: proved,
		quiet: s.patience.get(), from: s.queue.NewestVersion(), began: s.clock.Now(), late: !s.queue.Reached()}
	if timeoutSeconds != nil {
		timeout := time.Duration(*timeoutSeconds) * time.Second
		w.until = w.began.Add(timeout)
		w.short = timeout <= s.o.confirmTimeout
		if w.short && timeout < w.quiet { // the server ends it itself, unless the link is dead
			w.quiet = timeout + askPatience
		}
	}
	return w
}

// close ends the watch before it is followed, or after that.
func (w *watcher) close() {
	w.proved() // before a relist may begin
	w.inner.Stop()
}

// errShort: a watch has ended at once.
var errShort = errors.New("reflector: the watch has ended in less than a second, without an event")

// follow hands each event to take, until the watch ends. The error is take's, or that the
// watch has ended at once, without an event.
func (w *watcher) follow(ctx context.Context, take func(watch.Event) error) error {
	defer w.close()
	clk := w.s.clock
	w.last, w.seen = clk.Now(), w.p.seenBytes()
	w.alarm = clk.NewTimer(w.quiet)
	defer w.alarm.Stop()
	w.audit.clk, w.again.clk = clk, clk
	defer w.audit.stop()
	defer w.again.stop()
	w.audit.reset(w.readIn())
	w.again.reset(w.s.unstored.in())
	w.damaged = w.s.store.Upstream.Damaged()
	for {
		ev, end, err := w.next(ctx)
		if end || err != nil {
			return err
		}
		if end, err = w.pass(ev, take); end || err != nil {
			return err
		}
	}
}

// next waits for the server's next event. end says that the watch is over, because the
// server, the reader or a reason to ask or to list has ended it.
func (w *watcher) next(ctx context.Context) (ev watch.Event, end bool, err error) {
	for {
		select {
		case <-w.alarm.C():
			if !w.isQuiet() {
				continue
			}
			w.s.doubtLink() // so the server is asked
			w.s.patience.exceeded()
			return ev, true, nil
		case <-w.s.fresh.hurry:
			if !w.mustAsk() {
				w.audit.reset(w.readIn()) // an audit, or a proof for the caller
				continue
			}
			w.s.doubtVersion() // so the server is asked
			return ev, true, nil
		case <-w.s.queue.Unstored():
			w.again.reset(w.s.unstored.in())
			continue
		case <-w.again.C:
			if d, due := w.s.unstored.in(); !due || d > 0 {
				w.again.reset(d, due)
				continue
			}
			return ev, true, nil // a list is read for the unstored objects
		case <-w.audit.C:
			if d, due := w.s.auditIn(); (!due || d > 0) && !w.s.mustProve() {
				w.audit.reset(w.readIn()) // the waiting callers are gone
				continue
			}
			return ev, true, nil // everything is compared
		case <-w.s.proving.differs:
			if !w.s.link.is(linkDisproved) {
				continue // a relist has repaired it
			}
			return ev, true, nil // everything is compared
		case <-w.damaged:
			w.s.doubtLink() // everything is read
			w.s.queue.Unconfirm(false)
			return ev, true, nil
		case <-ctx.Done(): // the channel may stay open
			return ev, true, nil
		case ev, ok := <-w.inner.ResultChan():
			if ctx.Err() != nil { // an end after that says nothing about the link
				return ev, true, nil
			}
			if !ok {
				return ev, true, w.ended()
			}
			return ev, false, nil
		}
	}
}

// isQuiet says whether the watch was quiet for as long as it may be. If not, isQuiet sets
// the alarm again.
func (w *watcher) isQuiet() bool {
	if left := w.quiet - w.s.clock.Since(w.last); left > 0 {
		w.alarm.Reset(left)
		return false
	}
	if n := w.p.seenBytes(); n > w.seen { // a large event is on its way
		w.seen = n
		w.alarm.Reset(w.quiet)
		return false
	}
	return true
}

// mustAsk says whether a caller waits for an answer that only a question brings.
func (w *watcher) mustAsk() bool {
	if !w.s.fresh.want() {
		return false
	}
	if w.s.proving.compares() {
		return false // an answer is under way
	}
	reached := w.s.queue.Reached()
	if _, asked := w.s.queue.Target(); w.short &&
		(w.s.queue.Proven().Before(asked) || w.s.proving.mode == ConfirmList && !reached) {
		return false // so it is here; or a list has given it, which may be large with ConfirmList
	}
	return w.s.proofIn() <= 0 || w.s.listsForWaiting()
}

// pass hands an event on, and notes what it says about the link. end says that the watch is
// over.
func (w *watcher) pass(ev watch.Event, take func(watch.Event) error) (end bool, err error) {
	failed := ev.Type == watch.Error
	if w.wrong = failed; failed {
		w.s.doubtLink()
		if isExpired(apierrors.FromObject(ev.Object)) {
			w.s.link.expired() // so a relist comes before the next watch
			return true, nil
		}
	}
	if !w.moved && (!failed || unreadable(apierrors.FromObject(ev.Object))) {
		w.s.link.began(!failed)
	}
	if ev.Type == watch.Bookmark {
		w.s.patience.bookmarked()
		if ordered(w.s.queue) {
			w.s.link.bookmarked()
		}
	}
	w.moved = true
	w.changed.add(ev)
	rv := versionOf(ev.Object) // from then on the transform may change the object
	w.newer = w.newer || versions.Newer(rv, w.from)
	if err := take(ev); err != nil {
		return true, err
	}
	w.last, w.seen = w.s.clock.Now(), w.p.seenBytes()
	if w.late && w.s.queue.ReachedBy(rv) {
		w.late = false
		w.s.enter(PhaseLive, "")
		w.s.proving.reached()
		w.audit.reset(w.readIn())
		if w.s.fresh.wantAnswer() { // a caller has come since the server was asked
			w.s.doubtVersion()
			return true, nil
		}
	}
	return false, nil
}

// readIn is how long a watch may go on until a list must be read, for an audit or for a
// proof that was put off. ok says whether there will be one.
func (w *watcher) readIn() (time.Duration, bool) {
	s := w.s
	d, ok := s.auditIn()
	if proof := s.proofIn(); proof > 0 && (!ok || proof < d) {
		d, ok = proof, true
	}
	return d, ok
}

// unreadable says whether an error in a watch may come of one event or version: the client
// could not read the event, the server could not send it, or the error is none.
func unreadable(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || mayBeOfVersion(err)
}

// shortestWatch is how long a watch lasts at least, unless something is wrong; it is
// client-go's figure.
const shortestWatch = time.Second

// ended notes that the server has ended the watch.
func (w *watcher) ended() error {
	// After a watch that ends on time nothing needs to be asked. If it ends early, the
	// link has broken, and another server may answer next.
	early := w.until.IsZero() || w.s.clock.Now().Before(w.until.Add(-time.Second))
	atOnce := !w.moved && w.s.clock.Since(w.began) < shortestWatch
	switch {
	case early:
		if atOnce { // perhaps its first event was cut off
			w.s.link.began(false)
		}
		w.s.doubtLink()
	case w.late || !w.moved: // was there nothing to send, or was nothing sent?
		w.s.doubtVersion()
	}
	if !early {
		if !w.wrong {
			w.s.link.began(true)
		}
		if w.late && w.short {
			w.s.link.fellShort(w.newer)
		}
	}
	if atOnce {
		return errShort
	}
	return nil
}

// versionOf is an object's version, "" for 0, as with listVersion.
func versionOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil || m.GetResourceVersion() == "0" {
		return ""
	}
	return m.GetResourceVersion()
}

// clockTimer is a timer that may be stopped.
type clockTimer struct {
	C   <-chan time.Time // nil: it does not run
	clk clock.Clock
	t   clock.Timer
}

func (t *clockTimer) stop() {
	if t.t != nil {
		t.t.Stop()
	}
	t.C, t.t = nil, nil
}

// reset starts the timer again, if it is to run.
func (t *clockTimer) reset(d time.Duration, run bool) {
	t.stop()
	if run {
		t.t = t.clk.NewTimer(d)
		t.C = t.t.C()
	}
}
