package kubeapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// Bookmarks come once a minute and shortly before the timeout. The real
	// server looks for those that are due about once a second, hence a mean
	// delay after the moment itself.
	bookmarkPeriod = time.Minute
	bookmarkLead   = 2 * time.Second
	bookmarkDelay  = 650 * time.Millisecond

	// minTimeout is the least time a watch without timeoutSeconds lives; the
	// most is twice that.
	minTimeout = 30 * time.Minute
)

// stream is one watch being served.
type stream struct {
	*Request
	q        *Parameters
	w        Watch
	known    uint64 // bookmarks must be newer
	deadline time.Time
	bookmark time.Time     // when the next is due; zero is never
	out      *bufio.Writer // frames that wait for the next flush; nil if none do
}

func (r *Request) watch() error {
	q, err := r.Parameters()
	if err != nil {
		return err
	}
	var version uint64
	if q.ResourceVersion != "" {
		if version, err = strconv.ParseUint(q.ResourceVersion, 10, 64); err != nil {
			return errNoVersion(q.ResourceVersion, err)
		}
	}
	initial := version == 0
	if q.SendInitialEvents != nil {
		initial = *q.SendInitialEvents
	}
	timeout := minTimeout + rand.N(minTimeout)
	if q.TimeoutSeconds != nil && *q.TimeoutSeconds != 0 {
		timeout = time.Duration(*q.TimeoutSeconds) * time.Second
	}
	now := r.h.Clock.Now()
	st := &stream{Request: r, q: q, deadline: now.Add(timeout)}
	st.scheduleBookmark(now)

	// The timer starts before the headers are sent. So a test that sees the watch
	// established may move a fake clock.
	timer := r.h.Clock.NewTimer(st.nextWake().Sub(now))
	defer timer.Stop()
	media := MediaJSON
	if r.enc.proto {
		media = MediaProto + ";stream=watch"
	}

	w, err := r.h.Storage.Watch(r.Context(), r.Type,
		WatchQuery{Selection: q.Selection, Version: version, Initial: initial,
			Newest: q.ResourceVersion == "" && q.SendInitialEvents != nil, Messages: r.onlyMessages(&q.Selection)})
	failure := watchStatus(err)
	if err != nil && failure == nil {
		return err
	}
	r.w.Header().Set("Content-Type", media)
	r.w.WriteHeader(http.StatusOK)
	if failure != nil {
		return st.sendStatus(failure)
	}
	defer w.Close()
	st.w = w
	if err = st.flush(); err == nil && timeout > 0 { // the client knows that the watch has begun
		err = st.serve(initial && q.AllowWatchBookmarks, timer.C(), func(d time.Duration) { timer.Reset(d) })
	}
	return st.broken(cmp.Or(st.flush(), err))
}

// watchStatus returns the status that a watch sends as an event, since it is about
// versions, or nil.
func watchStatus(err error) *apierrors.StatusError {
	var large *TooLargeError
	switch {
	case errors.As(err, &large):
		return errTooLarge(large)
	case errors.Is(err, ErrExpired):
		return apierrors.NewResourceExpired(err.Error())
	}
	return nil
}

// serve sends the initial objects, if there are any, and then changes.
func (st *stream) serve(markInitial bool, wake <-chan time.Time, reset func(time.Duration)) error {
	start := st.w.Start()
	st.known = start.Known
	if start.Objects != nil {
		for o, err := range start.Objects {
			if err != nil {
				return err
			}
			if err := st.sendObject(watch.Added, o); err != nil {
				return err
			}
		}
	}
	if markInitial {
		if err := st.sendBookmark(start.Version, true); err != nil {
			return err
		}
	}
	if err := st.flush(); err != nil {
		return err
	}
	return st.run(wake, reset)
}

// run sends events as they come, until the timeout, the Storage or the client ends the
// watch.
func (st *stream) run(wake <-chan time.Time, reset func(time.Duration)) error {
	due := false // a bookmark, once all changes before it are sent
	for {
		batch, err := st.w.Next(st.Context())
		if err != nil {
			return err
		}
		if err := st.sendChanges(batch); err != nil {
			return err
		}
		changed := batch.Changed
		if batch.Mark && st.q.AllowWatchBookmarks && !st.h.NoBookmarks {
			if err := st.sendBookmark(batch.Version, false); err != nil {
				return err
			}
		}
		if len(batch.Changes) > 0 || batch.Each != nil || batch.Mark {
			changed = alreadyClosed // there may be more, but wake has its turn
		} else if due {
			due = false
			if batch.Version > st.known {
				if err := st.sendBookmark(batch.Version, false); err != nil {
					return err
				}
			}
			now := st.h.Clock.Now()
			st.scheduleBookmark(now)
			reset(st.nextWake().Sub(now))
		}
		if err := st.flush(); err != nil {
			return err
		}
		select {
		case <-st.w.Done():
			_, err := st.w.Next(st.Context())
			return err
		case <-changed:
		case <-st.Context().Done():
			return context.Cause(st.Context())
		case <-wake:
			now := st.h.Clock.Now()
			if !now.Before(st.deadline) {
				return ErrWatchOver
			}
			if due = !st.bookmark.IsZero() && !now.Before(st.bookmark); !due {
				reset(st.nextWake().Sub(now))
			}
		}
	}
}

func (st *stream) sendChanges(b Batch) error {
	for _, c := range b.Changes {
		if err := st.sendChange(c); err != nil {
			return err
		}
	}
	if b.Each == nil {
		return nil
	}
	for c, err := range b.Each {
		if err == nil {
			err = st.sendChange(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (st *stream) sendChange(c *Change) error {
	kind, o, err := st.q.view(st.Type, c)
	if err != nil || o == nil {
		return err
	}
	return st.sendObject(kind, o)
}

var alreadyClosed = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// scheduleBookmark sets the time of the next bookmark after now.
func (st *stream) scheduleBookmark(now time.Time) {
	next := now.Add(bookmarkPeriod)
	if last := st.deadline.Add(-bookmarkLead); last.Before(next) {
		next = last
	}
	st.bookmark = time.Time{}
	if st.q.AllowWatchBookmarks && !st.h.NoBookmarks && next.After(now) {
		st.bookmark = next.Add(bookmarkDelay)
	}
}

func (st *stream) nextWake() time.Time {
	if !st.bookmark.IsZero() {
		return st.bookmark
	}
	return st.deadline
}

// broken ends a watch that has begun, when an error can no longer become an HTTP
// status: in good order, with an ERROR event, or by closing the connection.
func (st *stream) broken(err error) error {
	var status *apierrors.StatusError
	if expired := watchStatus(err); expired != nil {
		err = expired
	}
	switch {
	case err == nil, errors.Is(err, ErrWatchOver):
		return nil
	case errors.As(err, &status):
		return st.sendStatus(status)
	case errors.Is(err, http.ErrAbortHandler):
	case st.Context().Err() != nil: // the client has left, or the server ends
		return nil
	default:
		st.h.failed(st.Request.Request, err)
	}
	panic(http.ErrAbortHandler)
}

func (st *stream) sendObject(kind watch.EventType, o *Object) error {
	enc := st.enc.still()
	obj, err := st.Type.object(o, enc)
	if err != nil {
		return err
	}
	st.count(1)
	return st.sendAgain(kind, obj, enc, o.Again)
}

func (st *stream) sendBookmark(rv uint64, initialEventsEnd bool) error {
	obj, err := st.Type.bookmark(rv, initialEventsEnd, st.enc)
	if err != nil {
		return err
	}
	return st.send(watch.Bookmark, obj)
}

func (st *stream) sendStatus(status *apierrors.StatusError) error {
	obj, err := encodeStatus(&status.ErrStatus, st.enc)
	if err == nil {
		err = cmp.Or(st.send(watch.Error, obj), st.flush())
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}
