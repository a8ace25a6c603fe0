package reflector

import (
	"reflect"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// watcher passes a server's events on to the Reflector, but for the one that
// says that the version has expired: that is repaired within the next Watch,
// since the Reflector would sleep on its backoff first, then list.
type watcher struct {
	s     *Source
	inner watch.Interface
	until time.Time // when the server is to end it
	out   chan watch.Event
	done  chan struct{}
	once  sync.Once
}

func (s *Source) wrap(inner watch.Interface, timeoutSeconds *int64, repaired bool) watch.Interface {
	w := &watcher{s: s, inner: inner, out: make(chan watch.Event), done: make(chan struct{})}
	if timeoutSeconds != nil {
		w.until = s.o.Clock.Now().Add(time.Duration(*timeoutSeconds) * time.Second)
	}
	go w.run(repaired)
	return w
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *watcher) Stop() {
	w.once.Do(func() { close(w.done) })
	w.inner.Stop()
}

func (w *watcher) run(repaired bool) {
	defer close(w.out)
	defer w.inner.Stop()
	// The Reflector still has the version from before the repair.
	if repaired && !w.send(w.s.bookmark()) {
		return
	}
	for damaged := w.s.store.Damaged(); ; {
		var ev watch.Event
		var open bool
		select {
		case <-damaged:
			w.s.broken()
			w.send(w.s.bookmark()) // the next Watch relists
			return
		case ev, open = <-w.inner.ResultChan():
		}
		if !open {
			w.ended()
			return
		}
		if ev.Type == watch.Error {
			w.s.broken()
			if isExpired(apierrors.FromObject(ev.Object)) {
				w.s.setExpired()
				// Without an event in its first second a watch counts as a
				// failure that is backed off from.
				w.send(w.s.bookmark())
				return
			}
		}
		if !w.send(ev) {
			return
		}
		if w.s.behind() && w.s.journal.ReachedBy(versionOf(ev.Object)) {
			w.s.enter(Live, "")
		}
	}
}

// ended notes that the server has ended the watch.
func (w *watcher) ended() {
	// A watch that ends when it was to end leaves nothing to ask. The link
	// under one that ends earlier has broken, and who knows what comes back.
	if w.s.o.Clock.Now().Before(w.until.Add(-time.Second)) || w.s.behind() {
		w.s.broken()
	}
}

func versionOf(obj runtime.Object) string {
	m, err := meta.Accessor(obj)
	if err != nil {
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

// bookmark is an event that tells the Reflector the version to go on from.
func (s *Source) bookmark() watch.Event {
	obj := reflect.New(reflect.TypeOf(s.example).Elem()).Interface().(runtime.Object)
	obj.GetObjectKind().SetGroupVersionKind(s.example.GetObjectKind().GroupVersionKind())
	if m, err := meta.Accessor(obj); err == nil {
		m.SetResourceVersion(s.journal.Accepted())
	}
	return watch.Event{Type: watch.Bookmark, Object: obj}
}

func (s *Source) behind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.Phase == CatchingUp
}
