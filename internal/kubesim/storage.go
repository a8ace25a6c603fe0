package kubesim

import (
	"context"
	"iter"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// storage is a Server as package kubeapi sees it.
type storage struct{ *Server }

var _ kubeapi.Storage = storage{}

// eventBatch is how many events a watch takes at a time.
const eventBatch = 256

func (s storage) Types() []*kubeapi.Type { return s.store.Load().types }

func (s storage) Get(_ context.Context, t *kubeapi.Type, namespace, name string, least uint64) (
	*kubeapi.Object, error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if least > s.rev {
		return nil, &kubeapi.TooLargeError{Version: least, Current: s.rev}
	}
	return s.tableOfType(t).current(t.Key(namespace, name)), nil
}

func (s storage) List(_ context.Context, t *kubeapi.Type, q kubeapi.Query) (*kubeapi.Page, error) {
	if most := s.opts.LargestPage; most > 0 {
		q.Limit = min(q.Limit, most) // 0 stays 0
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if least := max(q.Least, q.At); least > s.rev {
		return nil, &kubeapi.TooLargeError{Version: least, Current: s.rev}
	}
	if q.At == 0 {
		q.At = s.rev
	}
	if q.At < max(s.compacted, s.listable) {
		return nil, kubeapi.ErrExpired
	}
	return s.tableOfType(t).collect(q), nil
}

// collect gathers the objects of a page and the position of the next one. It needs
// Server.mu.
func (t *table) collect(q kubeapi.Query) *kubeapi.Page {
	p := &kubeapi.Page{Version: q.At}
	full := false
	t.scan(q.Prefix(), q.From, q.At, func(key string, o *kubeapi.Object) bool {
		if full {
			p.Rest++
			return true
		}
		if q.Matches(o) {
			p.Objects = append(p.Objects, o)
			p.Last = key
			full = q.Limit > 0 && int64(len(p.Objects)) == q.Limit
		}
		return true
	})
	return p
}

// watcher is one watch.
type watcher struct {
	s      *Server
	t      *table
	gen    *generation
	cursor uint64 // revision up to which events were returned
	start  kubeapi.Start
}

func (s storage) Watch(ctx context.Context, typ *kubeapi.Type, q kubeapi.WatchQuery) (kubeapi.Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tableOfType(typ)
	w := &watcher{s: s.Server, t: t, gen: generationOf(ctx)}
	rv := q.Version
	if q.Initial {
		if rv > s.rev {
			return nil, &kubeapi.TooLargeError{Version: rv, Current: s.rev}
		}
		w.cursor = s.rev
		w.start = kubeapi.Start{Version: s.rev, Known: s.rev,
			Objects: all(t.collect(kubeapi.Query{Selection: q.Selection, At: s.rev}).Objects)}
		return w, nil
	}
	if rv == 0 {
		rv = s.rev
	}
	if rv < t.floor {
		return nil, kubeapi.Expired(rv, t.floor)
	}
	w.cursor, w.start = rv, kubeapi.Start{Version: rv, Known: rv}
	if n := len(t.events); n > 0 {
		w.start.Known = max(rv, t.events[n-1].Version) // replayed events count as known
	}
	return w, nil
}

func all(objects []*kubeapi.Object) iter.Seq2[*kubeapi.Object, error] {
	return func(yield func(*kubeapi.Object, error) bool) {
		for _, o := range objects {
			if !yield(o, nil) {
				return
			}
		}
	}
}

func (w *watcher) Start() kubeapi.Start  { return w.start }
func (w *watcher) Done() <-chan struct{} { return w.gen.done }
func (w *watcher) Close()                {}

func (w *watcher) Next(ctx context.Context) (kubeapi.Batch, error) {
	select {
	case <-w.gen.done:
		return kubeapi.Batch{}, w.ended(ctx) // without the lock
	default:
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	events, ok := w.t.after(w.cursor, eventBatch)
	if !ok {
		return kubeapi.Batch{}, kubeapi.ErrWatchOver // too slow: the real server ends such watches too
	}
	if n := len(events); n > 0 {
		w.cursor = events[n-1].Version
	}
	return kubeapi.Batch{Changes: events, Version: w.s.rev, Changed: w.t.changed}, nil
}

// ended says how the fault that closed the generation ends the watch.
func (w *watcher) ended(ctx context.Context) error {
	switch end := w.gen.end; {
	case end.mute:
		select {
		case <-ctx.Done():
		case <-w.s.closing:
		}
		return http.ErrAbortHandler
	case end.abort:
		return http.ErrAbortHandler
	case end.status != nil:
		return &apierrors.StatusError{ErrStatus: *end.status}
	default:
		return kubeapi.ErrWatchOver
	}
}
