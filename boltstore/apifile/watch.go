package apifile

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"weak"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// watcher is one watch. It has a place in the journal and holds no changes.
type watcher struct {
	s       *storage
	src     *source
	kept    bool // the program has claimed the source meanwhile
	at      boltstore.Moment
	start   kubeapi.Start
	version uint64 // up to which the watcher has everything
	after   uint64 // the version from which the watch began
	behind  bool   // the file has not reached after yet: changes up to it are left out
	mark    bool   // a list has ended, a bookmark is due
	copies  bool   // objects are sent as the file has them

	// A list brings changes, but not in the order of versions. Those of its own version
	// come last, so that a client that goes on from that version has all others. They are
	// left out at first, and the list's changes are read once more for them.
	list  *boltstore.Moment // before the list's changes, nil outside of them
	left  bool              // some were left out
	again bool              // they are read once more

	reads bool // it has a place among those that read
}

// Watch implements kubeapi.Storage.
func (s *storage) Watch(ctx context.Context, t *kubeapi.Type, q kubeapi.WatchQuery) (kubeapi.Watch, error) {
	src, err := s.pick(t, q.Selection)
	if err != nil {
		return nil, err
	}
	if q.Newest {
		s.freshen(ctx, src)
	}
	w := &watcher{s: s, src: src, kept: src.st.InUse, copies: q.Messages && src.copies()}
	if q.Initial {
		at, err := s.reach(ctx, src, q.Version)
		if err != nil {
			return nil, answer(err)
		}
		w.at, w.version = at, number(at.Version)
		w.after = w.version
		src.few = !s.part.Take(oneRead)
		objects := src.walk(ctx, at, kubeapi.Query{Selection: q.Selection, Messages: q.Messages})
		w.start = kubeapi.Start{Version: w.version, Known: w.version,
			Objects: func(yield func(*kubeapi.Object, error) bool) {
				defer s.part.Free() // the watch may last
				for objs, err := range objects {
					if err != nil {
						yield(nil, err)
						return
					}
					for i, o := range objs {
						objs[i] = nil
						o.Again = src.again(at, o, q.Messages)
						if !yield(o, nil) {
							return
						}
					}
				}
			}}
		return w, nil
	}
	asked := ""
	if q.Version > 0 {
		asked = strconv.FormatUint(q.Version, 10)
	}
	at, newest, err := src.MomentFrom(asked)
	switch {
	case errors.Is(err, boltstore.ErrTrimmed):
		return nil, kubeapi.Expired(q.Version, number(newest))
	case err != nil:
		return nil, answer(err)
	}
	w.at, w.version = at, q.Version
	if q.Version == 0 {
		w.version = number(newest)
	}
	w.after, w.behind = w.version, number(newest) < w.version
	w.start = kubeapi.Start{Version: w.version, Known: w.version}
	return w, nil
}

// ended says how an error of the file ends a watch that has begun.
func ended(err error) error {
	switch {
	case errors.Is(err, boltstore.ErrTrimmed), errors.Is(err, boltstore.ErrNotWhole),
		errors.Is(err, boltstore.ErrNoSource):
		return fmt.Errorf("%w: %w", kubeapi.ErrExpired, err)
	case errors.Is(err, boltstore.ErrClosed), errors.Is(err, boltstore.ErrTaken):
		return kubeapi.ErrWatchOver
	}
	return err
}

func (w *watcher) Start() kubeapi.Start { return w.start }

// Done is never closed: a file that is closed shows in Next.
func (w *watcher) Done() <-chan struct{} { return nil }

// Close implements kubeapi.Watch.
func (w *watcher) Close() { w.hasRead() }

func (w *watcher) Next(context.Context) (kubeapi.Batch, error) {
	if w.mark {
		w.mark = false
		return kubeapi.Batch{Version: w.version, Mark: true}, nil
	}
	changed := w.s.db.Committed(w.src.st.Source)
	w.kept = w.kept || w.src.InUse()
	before := w.at
	w.read()
	e, err := w.src.EntriesAfter(before)
	if err == nil && w.left && !e.Listed { // so many lists have come since that this one is forgotten
		err = kubeapi.ErrExpired
	}
	if err != nil || len(e.Entries) == 0 {
		w.hasRead()
	}
	if err != nil {
		return kubeapi.Batch{}, ended(err)
	}
	w.at = e.Next
	if len(e.Entries) > 0 {
		if e.Listed && w.list == nil {
			w.list = &before
		}
		return kubeapi.Batch{Each: w.each(before.Series, e)}, nil
	}
	w.reached(e)
	if w.kept && !w.src.InUse() {
		return kubeapi.Batch{}, kubeapi.ErrWatchOver // another source may be kept in its place
	}
	return kubeapi.Batch{Version: w.version, Changed: changed}, nil
}

// each decodes one entry at a time, and keeps none.
func (w *watcher) each(series int64, e boltstore.EntriesAt) iter.Seq2[*kubeapi.Change, error] {
	return func(yield func(*kubeapi.Change, error) bool) {
		defer w.hasRead() // all may be left out
		for i, entry := range e.Entries {
			e.Entries[i] = nil
			switch v := number(entry.Version()); {
			case e.Listed:
				listed := number(e.ListVersion)
				if v > listed { // a later page showed it: a client that goes on from there would miss the rest
					yield(nil, kubeapi.ErrExpired)
					return
				}
				if last := v == listed; last != w.again {
					w.left = w.left || last
					continue
				}
			case v > 0:
				if w.behind = w.behind && v <= w.after; w.behind {
					continue
				}
				w.version = max(w.version, v)
			}
			p := place{weak.Make(w.s.db), w.src.st.Source, series, entry.Seq, w.version, w.copies}
			c, err := shared.change(w.src, p, entry)
			w.hasRead()
			if err != nil {
				yield(nil, ended(err))
				return
			}
			if c != nil && !yield(c, nil) {
				return
			}
		}
		w.reached(e)
	}
}

// reached: the watcher has all entries.
func (w *watcher) reached(e boltstore.EntriesAt) {
	if v := number(e.Next.Version); v > 0 {
		if e.Listed && w.left && !w.again {
			w.at, w.again = *w.list, true
			return
		}
		w.list, w.left, w.again = nil, false, false
		w.mark, w.behind = e.Listed && v > w.after, w.behind && v < w.after
		w.version = max(v, w.after)
	}
}

// change is an entry in the form of package kubeapi, nil if no watcher can have had the
// object.
func (s *source) change(e *boltstore.Entry, version uint64, copies bool) (*kubeapi.Change, error) {
	c := &kubeapi.Change{Version: version}
	if e.Unknown() {
		return nil, nil
	}
	if copies {
		switch msg, ok, err := e.Message(); {
		case err != nil:
			return nil, fmt.Errorf("%w: %w", boltstore.ErrTrimmed, err)
		case ok:
			if c.Cur = copied(e.Key, e.Version(), msg); !e.IsNew() {
				c.Prev = copied(e.Key, "", nil) // whether it was there is all that is looked at
			}
			return c, nil
		}
	}
	prev, err := e.Previous()
	if err == nil && prev != nil {
		c.Prev, err = s.object(prev)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", boltstore.ErrTrimmed, err)
	}
	obj, err := e.Object()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", boltstore.ErrTrimmed, err)
	}
	_, unknown := obj.(cache.DeletedFinalStateUnknown)
	switch {
	case e.Type != cache.Deleted:
		c.Cur, err = s.object(obj)
	case c.Prev == nil:
		return nil, fmt.Errorf("%w: it is not known what was deleted at %q", boltstore.ErrTrimmed, e.Key)
	case !unknown:
		c.Final, err = s.object(obj)
	}
	return c, err
}
