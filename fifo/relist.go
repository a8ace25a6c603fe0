package fifo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
)

// Relisted is handed out by Pop for a relist whose changes are not kept in memory.
type Relisted struct {
	ResourceVersion string
	// First says that the source was empty, and that nothing has been journaled.
	// Otherwise the journal has the differences.
	First bool
	// More says that the relist goes on.
	More bool
}

// Replace brings the file in line with a full list. Pop hands out the differences as
// Added, Updated and Deleted. A list with something that is no runtime.Object is refused.
// Like Add, Replace returns ErrClosed once the queue is closed.
func (q *Queue) Replace(list []any, rv string) error {
	objs := make([]runtime.Object, 0, len(list))
	for _, o := range list {
		ro, ok := o.(runtime.Object)
		if !ok {
			return fmt.Errorf("fifo: replace the contents of %s: a %T is no runtime.Object; list API objects only",
				q.store.Source(), o)
		}
		objs = append(objs, ro)
	}
	ctx := context.Background()
	r, err := q.BeginRelist(ctx, boltstore.RelistOptions{})
	if err != nil {
		return err
	}
	defer r.Abort()
	r.NewestPage(rv)
	if err := r.Page(objs); err != nil {
		return err
	}
	return r.Commit(ctx, rv, rv, rv)
}

// Relist is a boltstore.Relist whose result goes through the queue. Until it ends, the
// queue accepts nothing else: Add and its like wait.
type Relist struct {
	*boltstore.Relist
	q      *Queue
	began  time.Time            // when its first page was asked for, in this life or an earlier one
	slept  func() time.Duration // what the machine has slept since then
	failed int                  // objects that could not be stored
	told   uint64               // seq up to which Pop has handed out what it has journaled
	ended  bool                 // by Commit or Abort
}

// BeginRelist begins to bring the file in line with a full list that comes in pages. It
// waits until another relist has ended, and everything accepted before is in the file. The
// error is ErrClosed once the queue is closed. The caller hands over the pages, and ends
// the relist with Commit or Abort. After a Commit that fails, Abort ends it.
func (q *Queue) BeginRelist(ctx context.Context, o boltstore.RelistOptions) (_ *Relist, err error) {
	ctx, end := q.untilClosed(ctx)
	defer end(nil)
	if err := q.beginListing(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			q.endListing()
		}
	}()
	q.DropHeld()
	if err := q.Flush(ctx); err != nil {
		return nil, err
	}
	r := &Relist{q: q}
	o.OnError = r.unstored
	if q.transform != nil {
		o.Transform = q.transformListed
	}
	if r.Relist, err = q.store.Upstream.BeginRelist(o); err != nil {
		return nil, err
	}
	r.began, r.slept = q.now(), q.store.Upstream.Sleeping()
	if at, ok := r.TakenUp(); ok {
		r.began = at.Began
	}
	return r, nil
}

// untilClosed returns a context that also ends, with ErrClosed, once the queue is closed.
func (q *Queue) untilClosed(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, end := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-q.closing:
			end(ErrClosed)
		case <-ctx.Done():
		}
	}()
	return ctx, end
}

// beginListing waits for the end of another list. The error is the context's, or ErrClosed.
func (q *Queue) beginListing(ctx context.Context) error {
	return q.await(ctx, func() bool {
		free := !q.listing && !q.closed
		q.listing = q.listing || free
		return free
	})
}

func (q *Queue) endListing() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listing = false
	q.cond.Broadcast()
}

// PageTo is boltstore.Relist.PageTo. Pop hands out what is journaled with the page.
func (r *Relist) PageTo(objs []runtime.Object, at listing.Progress) error {
	err := r.Relist.PageTo(objs, at)
	if seq := r.Journaled(); seq > r.told {
		r.told = seq
		r.q.pushRelisted(Relisted{More: true})
	}
	return err
}

// Abort ends the relist: what it has committed stays. After Commit, Abort does nothing.
func (r *Relist) Abort() {
	if !r.ended {
		r.ended = true
		if r.Journaled() > 0 {
			r.q.pushRelisted(Relisted{})
		}
		r.q.endListing()
	}
}

func (q *Queue) pushRelisted(r Relisted) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.push(outgoing{delta: &cache.Delta{Type: cache.ReplacedAll, Object: r}})
	q.cond.Broadcast()
}

// unstored counts a listed object that could not be stored.
func (r *Relist) unstored(_ runtime.Object, err error) {
	r.q.fail(err)
	if r.failed++; r.failed&(r.failed-1) == 0 { // the first, the second, the fourth, and so on
		r.q.log.Error(err, "A listed object cannot be stored, it will be read again", "source",
			r.q.store.Source().String(), "objects", r.failed)
	}
}

// Commit ends the relist. rv is the version to go on from, newest the newest version of a
// page, and target the version that the watch must reach. If pages came at several
// versions, rv is the first page's. The target is the newest page's, or a later version
// that the server has stated. The state is confirmed as of the request for the first page,
// however long the list has taken, if rv is the target or the list is Consistent.
// Otherwise it is confirmed once the watch has reached the target. Commit retries
// errors of the disk until ctx ends or the queue closes, unless the relist has to begin
// again.
func (r *Relist) Commit(ctx context.Context, rv, newest, target string) error {
	q := r.q
	var confirmed time.Time
	if rv == target || r.Consistent() {
		confirmed = r.began.Add(-r.slept())
	} else if confirmed = q.store.State().Confirmed; confirmed.IsZero() {
		confirmed = time.Unix(0, 0)
	}
	r.NewestPage(newest)
	return r.end(ctx, rv, newest, target, confirmed, true)
}

// end commits. listed says whether a server has stated the list.
func (r *Relist) end(ctx context.Context, rv, newest, target string, confirmed time.Time, listed bool) error {
	entries, err := r.commit(ctx, rv, confirmed)
	if err != nil {
		return err
	}
	r.ended = true
	q := r.q
	q.mu.Lock()
	defer q.mu.Unlock()
	q.listing = false
	q.version.reached = false
	q.release()
	for _, e := range entries {
		q.push(outgoing{delta: &cache.Delta{Type: e.Type, Object: e}, size: e.Size()})
	}
	if entries == nil {
		q.push(outgoing{delta: &cache.Delta{Type: cache.ReplacedAll,
			Object: Relisted{ResourceVersion: rv, First: r.First()}}})
	}
	q.counts.accepted++
	q.counts.lastChange, q.counts.inFile = q.counts.accepted, q.counts.accepted
	q.push(outgoing{upTo: q.counts.accepted})
	q.version.target, q.version.accepted, q.version.asked, q.version.newest = target, rv, r.began, newest
	if rv == target {
		q.version.reached = listed // even if there are no versions
		q.advance(rv, confirmed)
		q.version.confirmed, q.version.slept, q.version.proven = confirmed, q.store.Upstream.Slept(), confirmed
	}
	q.cond.Broadcast()
	return nil
}

// transformListed is the transform for objects of a list.
func (q *Queue) transformListed(obj runtime.Object) (runtime.Object, error) {
	t, err := q.transformed(obj)
	if err != nil {
		return nil, err
	}
	ro, ok := t.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("fifo: the transform returned a %T", t)
	}
	return ro, nil
}

func (r *Relist) commit(ctx context.Context, rv string, confirmed time.Time) ([]*boltstore.Entry, error) {
	q := r.q
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	for {
		entries, err := r.Relist.Commit(rv, confirmed)
		over := errors.Is(err, boltstore.ErrClosed) || errors.Is(err, boltstore.ErrDamaged)
		if err == nil || over || errors.Is(err, boltstore.ErrAbandoned) {
			return entries, err
		}
		q.log.Error(err, "A relist could not be committed, it will be retried", "source", q.store.Source().String())
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-q.closing:
			return nil, errors.Join(ErrClosed, err)
		case <-time.After(backoff.Step()):
		}
	}
}
