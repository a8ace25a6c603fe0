package kubesim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

	eventBatch = 256
)

// stream is one watch being served.
type stream struct {
	*request
	q        *query
	cursor   uint64 // revision up to which events were examined
	floor    uint64 // bookmarks must be newer than the version the watch began at
	deadline time.Time
	bookmark time.Time // when the next is due; zero is never
}

func (r *request) watch() error {
	q, err := r.parseList()
	if err != nil {
		return err
	}
	var rv uint64
	if q.ResourceVersion != "" {
		if rv, err = strconv.ParseUint(q.ResourceVersion, 10, 64); err != nil {
			return &apierrors.StatusError{ErrStatus: metav1.Status{
				Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
				Message: fmt.Sprintf("resourceVersion: Invalid value: %q: %v", q.ResourceVersion, err),
			}}
		}
	}
	timeout := minTimeout + rand.N(minTimeout)
	if q.TimeoutSeconds != nil && *q.TimeoutSeconds > 0 {
		timeout = time.Duration(*q.TimeoutSeconds) * time.Second
	}
	now := r.s.clock.Now()
	st := &stream{request: r, q: q, deadline: now.Add(timeout)}
	st.scheduleBookmark(now)

	// The timer starts before the headers are sent. So a test that sees the watch
	// established may move a fake clock.
	timer := r.s.clock.NewTimer(st.nextWake().Sub(now))
	defer timer.Stop()
	media := mediaJSON
	if r.enc.proto {
		media = mediaProto + ";stream=watch"
	}
	r.w.Header().Set("Content-Type", media)

	initial, end, failure := st.begin(rv)
	r.w.WriteHeader(http.StatusOK)
	r.w.Flush()
	if failure != nil {
		return st.sendStatus(failure)
	}
	for _, v := range initial {
		if err := st.sendObject(watch.Added, v); err != nil {
			return st.broken(err)
		}
	}
	if end {
		if err := st.sendBookmark(st.cursor, true); err != nil {
			return st.broken(err)
		}
	}
	r.w.Flush()
	return st.broken(st.run(timer.C(), func(d time.Duration) { timer.Reset(d) }))
}

// begin positions the watch. It returns the objects to start with and whether a
// bookmark must tell their end, or the status to fail with.
func (st *stream) begin(rv uint64) (initial []*version, end bool, failure *apierrors.StatusError) {
	s, t, q := st.s, st.t, st.q
	s.mu.Lock()
	defer s.mu.Unlock()
	send := rv == 0
	if q.SendInitialEvents != nil {
		send = *q.SendInitialEvents
	}
	if send {
		if rv > s.rev {
			return nil, false, errTooLarge(rv, s.rev)
		}
		t.scan(q.prefix, "", s.rev, func(_ string, v *version) bool {
			if q.matches(v) {
				initial = append(initial, v)
			}
			return true
		})
		st.cursor, st.floor = s.rev, s.rev
		return initial, q.SendInitialEvents != nil && q.AllowWatchBookmarks, nil
	}
	if rv == 0 {
		rv = s.rev
	}
	if rv < t.floor {
		return nil, false, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", rv, t.floor))
	}
	st.cursor, st.floor = rv, rv
	if n := len(t.events); n > 0 {
		st.floor = max(rv, t.events[n-1].rv) // what is replayed counts as known
	}
	return nil, false, nil
}

var errWatchOver = errors.New("watch over")

// run sends events as they come, until the timeout, a fault or the client ends
// the watch.
func (st *stream) run(wake <-chan time.Time, reset func(time.Duration)) error {
	due := false // a bookmark, once all events before it are sent
	for {
		events, rev, changed, err := st.pending()
		if err != nil {
			return err
		}
		for _, ev := range events {
			kind, v, err := st.q.view(st.t, ev)
			if err != nil {
				return err
			}
			if v != nil {
				if err := st.sendObject(kind, v); err != nil {
					return err
				}
			}
			st.cursor = ev.rv
		}
		if len(events) > 0 {
			changed = alreadyClosed // there may be more, but wake has its turn
		} else if due {
			due = false
			if rev > st.floor {
				if err := st.sendBookmark(rev, false); err != nil {
					return err
				}
			}
			now := st.s.clock.Now()
			st.scheduleBookmark(now)
			reset(st.nextWake().Sub(now))
		}
		st.w.Flush()
		select {
		case <-st.gen.done:
			return st.ended()
		case <-changed:
		case <-st.Context().Done():
			return context.Cause(st.Context())
		case <-wake:
			now := st.s.clock.Now()
			if !now.Before(st.deadline) {
				return errWatchOver
			}
			if due = !st.bookmark.IsZero() && !now.Before(st.bookmark); !due {
				reset(st.nextWake().Sub(now))
			}
		}
	}
}

var alreadyClosed = func() <-chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return ch
}()

// pending returns the next events to examine, and if there are none the
// revision of that moment and what will tell of more.
func (st *stream) pending() (events []*event, rev uint64, changed <-chan struct{}, err error) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	select {
	case <-st.gen.done:
		return nil, 0, st.gen.done, nil // run is to end, without the lock
	default:
	}
	events, ok := st.t.after(st.cursor, eventBatch)
	if !ok {
		return nil, 0, nil, errWatchOver // too slow: the real server ends such watches too
	}
	return events, st.s.rev, st.t.changed, nil
}

// scheduleBookmark sets the time of the next bookmark after now.
func (st *stream) scheduleBookmark(now time.Time) {
	next := now.Add(bookmarkPeriod)
	if last := st.deadline.Add(-bookmarkLead); last.Before(next) {
		next = last
	}
	st.bookmark = time.Time{}
	if st.q.AllowWatchBookmarks && !st.s.opts.NoBookmarks && next.After(now) {
		st.bookmark = next.Add(bookmarkDelay)
	}
}

func (st *stream) nextWake() time.Time {
	if !st.bookmark.IsZero() {
		return st.bookmark
	}
	return st.deadline
}

// ended tells how the fault that closed st.gen ends the watch.
func (st *stream) ended() error {
	switch end := st.gen.end; {
	case end.mute:
		select {
		case <-st.Context().Done():
		case <-st.s.closing:
		}
		return http.ErrAbortHandler
	case end.abort:
		return http.ErrAbortHandler
	case end.status != nil:
		return &apierrors.StatusError{ErrStatus: *end.status}
	default:
		return errWatchOver
	}
}

// broken ends a watch that has begun, when an error can no longer become an HTTP
// status: in good order, with an ERROR event, or by closing the connection.
func (st *stream) broken(err error) error {
	var status *apierrors.StatusError
	switch {
	case err == nil, errors.Is(err, errWatchOver):
		return nil
	case errors.As(err, &status):
		return st.sendStatus(status)
	case errors.Is(err, http.ErrAbortHandler), st.Context().Err() != nil:
	default:
		st.s.log.Error("watch failed", "path", st.URL.Path, "err", err)
	}
	panic(http.ErrAbortHandler)
}

func (st *stream) sendObject(kind watch.EventType, v *version) error {
	obj, err := st.t.kind.object(v, st.enc)
	if err != nil {
		return err
	}
	st.w.items(1)
	return st.send(kind, obj)
}

func (st *stream) sendBookmark(rv uint64, initialEventsEnd bool) error {
	obj, err := st.t.kind.bookmark(rv, initialEventsEnd, st.enc)
	if err != nil {
		return err
	}
	return st.send(watch.Bookmark, obj)
}

func (st *stream) sendStatus(status *apierrors.StatusError) error {
	obj, err := encodeStatus(&status.ErrStatus, st.enc.proto)
	if err == nil {
		err = st.send(watch.Error, obj)
	}
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// send writes one frame: a line of JSON, or a WatchEvent message after its
// length in four bytes.
func (st *stream) send(kind watch.EventType, object []byte) error {
	var frame []byte
	if st.enc.proto {
		raw := appendBytes(nil, 1, object) // runtime.RawExtension
		msg := appendBytes(appendBytes(nil, 1, []byte(kind)), 2, raw)
		frame = append(binary.BigEndian.AppendUint32(nil, uint32(len(msg))), msg...)
	} else {
		frame = make([]byte, 0, len(object)+40)
		frame = fmt.Appendf(frame, `{"type":%q,"object":`, kind)
		frame = append(frame, object...)
		frame = append(frame, "}\n"...)
	}
	_, err := st.w.Write(frame)
	return err
}
