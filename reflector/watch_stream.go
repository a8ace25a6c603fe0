package reflector

import (
	"errors"
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/versions"
)

// watcher passes a server's events on to the Reflector. It hides the event that says that
// the version has expired. The next Watch repairs that, while the Reflector would wait
// for its backoff and list. It is one type because each event may end the watch for any of
// its reasons.
type watcher struct {
	s     *ListerWatcher
	inner watch.Interface
	p     *pulse    // counts its bytes; nil if they cannot be seen
	until time.Time // when the server should end it
	quiet time.Duration
	short bool   // it should bring the bookmark that confirms
	from  string // newest version that had been accepted when it began
	moved bool   // something has come
	newer bool   // something newer than from has come
	wrong bool   // the last thing that came was an error
	out   chan watch.Event
	done  chan struct{}
	once  sync.Once
	// changed is what it has brought since a list was asked for; nil without one. proved
	// ends the comparison with that list.
	changed *changedSince
	proved  func()

	// The rest is run's.
	damaged <-chan struct{}
	last    time.Time   // when the last event was passed on
	seen    int64       // bytes that had come by then
	alarm   clock.Timer // the watch has been quiet for long
	audit   clockTimer  // a list is due
	again   clockTimer  // unstored objects are to be listed
}

// stream returns the watch that the Reflector reads, over one that was opened.
func (s *ListerWatcher) stream(inner watch.Interface, p *pulse, timeoutSeconds *int64, repaired bool,
	changed *changedSince, proved func()) watch.Interface {
	w := &watcher{s: s, inner: inner, p: p, changed: changed, proved: proved,
		quiet: s.patience.get(), from: s.queue.NewestVersion(), out: make(chan watch.Event), done: make(chan struct{})}
	if timeoutSeconds != nil {
		timeout := time.Duration(*timeoutSeconds) * time.Second
		w.until = s.clock.Now().Add(timeout)
		w.short = timeout <= s.o.confirmTimeout
		if w.short && timeout < w.quiet { // the server ends it itself, unless the link is dead
			w.quiet = timeout + askPatience
		}
	}
	go w.run(repaired)
	return w
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.once.Do(func() { close(w.done) })
	w.proved() // before a relist may begin
	w.inner.Stop()
}

// run passes events on until the watch ends.
func (w *watcher) run(repaired bool) {
	defer close(w.out)
	defer w.inner.Stop()
	defer w.proved()
	// The Reflector still has the version from before the repair.
	if repaired && !w.send(w.bookmark()) {
		return
	}
	clk := w.s.clock
	w.last, w.seen = clk.Now(), w.p.seenBytes()
	w.alarm = clk.NewTimer(w.quiet)
	defer w.alarm.Stop()
	w.audit.clk, w.again.clk = clk, clk
	defer w.audit.stop()
	defer w.again.stop()
	w.audit.reset(w.readIn())
	w.again.reset(w.s.unstored.in())
	w.damaged = w.s.store.Damaged()
	for {
		if ev, ok := w.next(); !ok || !w.pass(ev) {
			return
		}
	}
}

// next waits for the server's next event. ok is false if the watch is over, because the
// server, the Reflector or a reason to ask or to list has ended it.
func (w *watcher) next() (ev watch.Event, ok bool) {
	for {
		select {
		case <-w.alarm.C():
			if !w.isQuiet() {
				continue
			}
			w.s.doubtLink()
			w.s.patience.exceeded()
			w.send(w.bookmark()) // the next Watch asks the server
			return ev, false
		case <-w.s.fresh.hurry:
			if !w.mustAsk() {
				continue
			}
			w.s.doubtVersion()
			w.send(w.bookmark()) // the next Watch asks the server
			return ev, false
		case <-w.s.queue.Unstored():
			w.again.reset(w.s.unstored.in())
			continue
		case <-w.again.C:
			if d, due := w.s.unstored.in(); !due || d > 0 {
				w.again.reset(d, due)
				continue
			}
			w.send(w.bookmark()) // the next Watch lists for the unstored objects
			return ev, false
		case <-w.audit.C:
			if d, due := w.s.auditIn(); (!due || d > 0) && !w.s.mustProve() {
				w.audit.reset(w.readIn()) // the waiting callers are gone
				continue
			}
			w.send(w.bookmark()) // the next Watch compares everything
			return ev, false
		case <-w.s.proving.differs:
			if !w.s.link.is(linkDisproved) {
				continue // a relist has repaired it
			}
			w.send(w.bookmark()) // the next Watch relists
			return ev, false
		case <-w.damaged:
			w.s.doubtLink()
			w.s.queue.Unconfirm(false)
			w.send(w.bookmark()) // the next Watch relists
			return ev, false
		case <-w.done: // the channel may stay open
			return ev, false
		case ev, ok = <-w.inner.ResultChan():
		}
		select {
		case <-w.done: // an end after Stop says nothing about the link
			return ev, false
		default:
		}
		if !ok {
			w.ended()
		}
		return ev, ok
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
	_, kept := w.inner.(*ahead)
	if !w.s.fresh.want() {
		return false
	}
	if w.s.proving.compares() {
		return false // an answer is under way
	}
	reached := w.s.queue.Reached()
	if _, asked := w.s.queue.Target(); (w.short || kept && !reached) && (w.s.queue.Proven().Before(asked) || w.s.proving.mode == ConfirmList && !reached) {
		return false // so it is here; or a list has given it, which may be large with ConfirmList
	}
	if w.s.proofIn() <= 0 || w.s.listsForWaiting() {
		return true
	}
	w.audit.reset(w.readIn()) // nothing else can confirm, and the watch goes on until then
	return false
}

// pass hands an event to the Reflector, and notes what it says about the link. It returns
// false once the watch is over.
func (w *watcher) pass(ev watch.Event) bool {
	failed := ev.Type == watch.Error
	if w.wrong = failed; failed {
		w.s.doubtLink()
		if isExpired(apierrors.FromObject(ev.Object)) {
			w.s.link.expired()
			// The Reflector backs off from a watch that brings no event in its first
			// second.
			w.send(w.bookmark())
			return false
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
	if !w.send(ev) {
		return false
	}
	w.last, w.seen = w.s.clock.Now(), w.p.seenBytes()
	if w.s.status.in(PhaseCatchingUp) && w.s.queue.ReachedBy(rv) {
		w.s.enter(PhaseLive, "")
		w.s.proving.reached()
		w.audit.reset(w.readIn())
		if w.s.fresh.wantAnswer() { // a caller has come since the server was asked
			w.s.doubtVersion()
			w.send(w.bookmark())
			return false
		}
	}
	return true
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
func (w *watcher) ended() {
	// After a watch that ends on time nothing needs to be asked. If it ends early, the
	// link has broken, and another server may answer next.
	early, behind := w.until.IsZero() || w.s.clock.Now().Before(w.until.Add(-time.Second)), w.s.status.in(PhaseCatchingUp)
	if early {
		if !w.moved && w.s.clock.Since(w.last) < shortestWatch { // perhaps its first event was cut off
			w.s.link.began(false)
		}
	}
	if early {
		w.s.doubtLink()
	} else if behind || !w.moved { // was there nothing to send, or was nothing sent?
		w.s.doubtVersion()
	}
	if !early {
		if !w.wrong {
			w.s.link.began(true)
		}
	}
	if !early && behind && w.short {
		w.s.link.fellShort(w.newer)
	}
}

// versionOf is an object's version, "" for 0, as with listVersion.
func versionOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil || m.GetResourceVersion() == "0" {
		return ""
	}
	return m.GetResourceVersion()
}

func (w *watcher) send(ev watch.Event) bool {
	select {
	case w.out <- ev:
		return true
	case <-w.done:
		return false
	}
}

// bookmark is an event with the version from which the Reflector goes on.
func (w *watcher) bookmark() watch.Event {
	s := w.s
	obj := reflect.New(reflect.TypeOf(s.example).Elem()).Interface().(runtime.Object)
	obj.GetObjectKind().SetGroupVersionKind(s.example.GetObjectKind().GroupVersionKind())
	if m, err := meta.Accessor(obj); err == nil {
		m.SetResourceVersion(s.queue.AcceptedVersion())
		s.queue.ExpectBookmark(m.GetResourceVersion())
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}
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
