package reflector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// WatchWithContext goes on after the change that was last listed or handed out,
// whatever the caller's version.
func (s *Standalone) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if err := refuseStream(o); err != nil {
		return nil, err
	}
	s.calls.Lock()
	defer s.calls.Unlock()
	if s.ctx.Err() != nil {
		return nil, errClosed
	}
	if err := s.endWatch(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	inner, err := s.source.open(ctx, o.TimeoutSeconds)
	s.mu.Lock()
	s.refused = isDenied(err)
	s.mu.Unlock()
	if err != nil {
		stop()
		cancel()
		if !isDenied(err) {
			err = noAnswer{err}
		}
		return nil, err
	}
	w := &stream{s: s, inner: inner, out: make(chan watch.Event), done: make(chan struct{}), ctx: ctx, cancel: cancel,
		began: s.source.clock.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		w.Stop()
		inner.close()
		return nil, errClosed
	}
	s.current, s.latest = w, w
	s.cond.Broadcast()
	go func() {
		defer close(w.done)
		defer stop()
		w.pump()
	}()
	return w, nil
}

// pop hands out what has been committed.
func (s *Standalone) pop() {
	for {
		_, err := s.queue.Pop(func(obj any, _ bool) error {
			for _, d := range obj.(cache.Deltas) {
				s.deliver(d)
			}
			return nil
		})
		if errors.Is(err, cache.ErrFIFOClosed) {
			return
		}
	}
}

// deliver waits until a watch has taken the change, or a list has it.
func (s *Standalone) deliver(d cache.Delta) {
	r, ok := d.Object.(fifo.Relisted)
	if r.More {
		return // its end is delivered, too
	}
	ev, seq := s.event(d)
	fresh := ok && r.First // other contents, with seqs of their own
	s.mu.Lock()
	defer s.mu.Unlock()
	for (seq > s.seq || fresh) && !s.listing && s.ctx.Err() == nil {
		w := s.current
		if w == nil {
			s.cond.Wait()
			continue
		}
		s.mu.Unlock()
		sent := w.send(ev)
		s.mu.Lock()
		if sent {
			s.seq = seq
			s.store.Delivery.SetTold(seq)
			return
		}
		if s.current == w {
			s.current = nil
		}
	}
}

// event is what a change looks like to client-go's Reflector. Changes that are too many to
// be handed out one by one lead to a list, as an expired version does.
func (s *Standalone) event(d cache.Delta) (watch.Event, uint64) {
	again := func(why string) watch.Event {
		return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired(why).ErrStatus}
	}
	e, ok := d.Object.(*boltstore.Entry)
	if !ok {
		return again("the file has been brought up to date"), s.store.State().Seq
	}
	types := map[cache.DeltaType]watch.EventType{cache.Added: watch.Added, cache.Updated: watch.Modified,
		cache.Deleted: watch.Deleted}
	obj, err := e.Object()
	if dead, unknown := obj.(cache.DeletedFinalStateUnknown); unknown {
		obj = dead.Obj
	}
	ro, ok := obj.(runtime.Object)
	if err != nil || !ok {
		return again(fmt.Sprintf("%s cannot be read from the file", e.Key)), e.Seq
	}
	return watch.Event{Type: types[d.Type], Object: ro.DeepCopyObject()}, e.Seq
}

// stream is a watch of a Standalone.
type stream struct {
	s      *Standalone
	inner  *watcher
	ctx    context.Context
	cancel context.CancelFunc
	began  time.Time

	sending sync.Mutex
	out     chan watch.Event
	done    chan struct{} // closed when it has ended
	ended   bool
	handed  bool // an event, so far
}

// ResultChan implements watch.Interface.
func (w *stream) ResultChan() <-chan watch.Event { return w.out }

// Stop implements watch.Interface.
func (w *stream) Stop() { w.cancel() }

// send hands an event to client-go's Reflector, unless the watch has ended.
func (w *stream) send(ev watch.Event) bool {
	w.sending.Lock()
	defer w.sending.Unlock()
	if w.ended || w.ctx.Err() != nil {
		return false
	}
	select {
	case w.out <- ev:
		w.handed = true
		return true
	case <-w.ctx.Done():
		return false
	}
}

// linger waits until the watch may end. After one of less than a second without an event,
// client-go lists (cache.VeryShortWatchError), and its handlers are told every object again.
func (w *stream) linger() {
	w.sending.Lock()
	handed := w.handed
	w.sending.Unlock()
	clk := w.s.source.clock
	if left := shortestWatch - clk.Since(w.began); !handed && left > 0 {
		select {
		case <-w.ctx.Done():
		case <-clk.After(left):
		}
	}
}

// pump puts what the server sends into the queue. The queue hands it out once it is
// in the file.
func (w *stream) pump() {
	_ = w.inner.follow(w.ctx, w.take) // the next watch asks or repairs
	w.linger()
	w.Stop()
	w.sending.Lock()
	defer w.sending.Unlock()
	w.ended = true
	close(w.out)
}

// take puts an event into the queue. client-go's Reflector gets errors at once, and bookmarks
// once their version can be read.
func (w *stream) take(ev watch.Event) error {
	if ev.Type == watch.Error {
		w.send(ev)
		return nil
	}
	if err := w.s.source.take(ev); err != nil || ev.Type != watch.Bookmark {
		return err
	}
	return w.bookmark(ev)
}

// bookmark hands out a bookmark, whose version client-go takes for that of its objects.
func (w *stream) bookmark(ev watch.Event) error {
	if rv := versionOf(ev.Object); rv != "" {
		if err := w.s.queue.WaitVersion(w.ctx, rv); err != nil {
			return err
		}
	}
	w.send(ev)
	return nil
}
