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
	if err := s.endWatch(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.ctx, cancel)
	inner, err := s.source.WatchWithContext(ctx, o)
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
	w := &stream{s: s, inner: inner, out: make(chan watch.Event), done: make(chan struct{}), ctx: ctx, cancel: cancel, began: s.source.clock.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		w.Stop()
		return nil, fmt.Errorf("reflector: watch %s: %w", s.store.Source(), fifo.ErrClosed)
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
			s.store.SetTold(seq)
			return
		}
		if s.current == w {
			s.current = nil
		}
	}
}

// event is what a change looks like to the Reflector. Changes that are too many to
// be handed out one by one lead to a list, as an expired version does.
func (s *Standalone) event(d cache.Delta) (watch.Event, uint64) {
	again := func(why string) watch.Event {
		return watch.Event{Type: watch.Error, Object: &apierrors.NewResourceExpired(why).ErrStatus}
	}
	e, ok := d.Object.(*boltstore.Entry)
	if !ok {
		return again("the file has been brought up to date"), s.store.State().Seq
	}
	types := map[cache.DeltaType]watch.EventType{cache.Added: watch.Added, cache.Updated: watch.Modified, cache.Deleted: watch.Deleted}
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
	inner  watch.Interface
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
func (w *stream) Stop() {
	w.cancel()
	w.inner.Stop()
}

// send hands an event to the Reflector, unless the watch has ended.
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

// shortest is how long a watch without an event lasts. After a shorter one the Reflector
// lists (cache.VeryShortWatchError), and its handlers are told every object again.
const shortest = time.Second

// linger waits until the watch may end.
func (w *stream) linger() {
	w.sending.Lock()
	handed := w.handed
	w.sending.Unlock()
	clk := w.s.source.clock
	if left := shortest - clk.Since(w.began); !handed && left > 0 {
		select {
		case <-w.ctx.Done():
		case <-clk.After(left):
		}
	}
}

// pump puts what the server sends into the queue. The queue hands it out once it is
// in the file.
func (w *stream) pump() {
	defer func() {
		w.linger()
		w.Stop()
		w.sending.Lock()
		defer w.sending.Unlock()
		w.ended = true
		close(w.out)
	}()
	q := w.s.queue
	for ev := range w.inner.ResultChan() {
		var err error
		switch ev.Type {
		case watch.Added:
			err = q.Add(ev.Object)
		case watch.Modified:
			err = q.Update(ev.Object)
		case watch.Deleted:
			err = q.Delete(ev.Object)
		case watch.Bookmark:
			// The Reflector takes its version for that of its objects.
			if rv := versionOf(ev.Object); rv != "" {
				if err = q.Bookmark(rv); err == nil {
					err = q.WaitVersion(w.ctx, rv)
				}
			}
			if err == nil && !w.send(ev) {
				return
			}
		default:
			if !w.send(ev) {
				return
			}
		}
		// The queue has reported what it could not store.
		if errors.Is(err, fifo.ErrClosed) || w.ctx.Err() != nil {
			return
		}
	}
}
