package fifo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// Relisted is what Pop hands out for a relist whose changes are not kept in
// memory.
type Relisted struct {
	ResourceVersion string
	// Anew: there was nothing before, and nothing has been journaled. Otherwise
	// the journal has what differs.
	Anew bool
}

// ExpectResume announces that the next Replace, without objects and at this
// version, is no list but a Reflector that goes on from the file.
func (q *Queue) ExpectResume(rv string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.resume = &rv
}

// Replace brings the file in line with a full list; what differs is handed out
// as Added, Updated and Deleted. Announced by ExpectResume it does nothing. A list
// with something that is no runtime.Object is refused.
func (q *Queue) Replace(list []any, rv string) error {
	q.mu.Lock()
	resume := q.resume != nil && *q.resume == rv && len(list) == 0
	q.resume = nil
	q.mu.Unlock()
	if resume {
		return nil
	}
	objs := make([]runtime.Object, 0, len(list))
	for _, o := range list {
		ro, ok := o.(runtime.Object)
		if !ok {
			return fmt.Errorf("fifo: replace the contents of %s: a %T is no runtime.Object; list API objects only", q.store.Source(), o)
		}
		objs = append(objs, ro)
	}
	_, err := q.Relist(context.Background(), boltstore.RelistOptions{}, func(r *boltstore.Relist) (string, string, error) {
		return rv, rv, r.Page(objs)
	})
	return err
}

// Pages hands over the pages of a list to the relist, which it does not end. It returns the version to go on from,
// and the newest one that a page was of. If that is another the pages are of
// different moments, and the state is confirmed once the watch has got there.
type Pages func(r *boltstore.Relist) (rv, newest string, err error)

// Relist brings the file in line with a full list that comes in pages. It
// waits until what was accepted before is in the file; meanwhile nothing else
// may be accepted. Disk errors at the end are retried until the queue closes,
// unless the relist has to begin anew.
func (q *Queue) Relist(ctx context.Context, o boltstore.RelistOptions, list Pages) (*boltstore.Relist, error) {
	return q.relist(ctx, o, time.Time{}, list)
}

// relist confirms at the given time, zero: when its first page was asked for,
// be it in an earlier life, since a list is of that moment, however long it
// takes.
func (q *Queue) relist(ctx context.Context, o boltstore.RelistOptions, confirmed time.Time, list Pages) (*boltstore.Relist, error) {
	listed := confirmed.IsZero()
	if err := q.Flush(ctx); err != nil {
		return nil, err
	}
	failed := 0
	o.OnError = func(_ runtime.Object, err error) {
		q.fail(err)
		if failed++; failed&(failed-1) == 0 { // the first, the second, the fourth, and so on
			q.o.Logger.Error(err, "A listed object cannot be stored, it will be read again", "source", q.store.Source().String(), "objects", failed)
		}
	}
	if q.o.Transform != nil {
		o.Transform = q.transformListed
	}
	r, err := q.store.BeginRelist(o)
	if err != nil {
		return nil, err
	}
	defer r.Abort()
	began, slept := q.o.Now(), q.store.DB().Slept()
	if at, ok := r.TakenUp(); ok {
		began = at.Began
	}
	rv, newest, err := list(r)
	if err != nil {
		return nil, err
	}
	switch {
	case !confirmed.IsZero():
	case rv == newest, r.Consistent():
		confirmed = began.Add(slept - q.store.DB().Slept())
	default:
		if confirmed = q.store.State().Confirmed; confirmed.IsZero() {
			confirmed = time.Unix(0, 0)
		}
	}
	entries, err := q.commit(ctx, r, rv, confirmed)
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reached = false
	for _, e := range entries {
		q.push(output{delta: &cache.Delta{Type: e.Type, Object: e}, size: e.Size()})
	}
	if entries == nil {
		q.push(output{delta: &cache.Delta{Type: cache.ReplacedAll, Object: Relisted{ResourceVersion: rv, Anew: r.Anew()}}})
	}
	q.count++
	q.lastChange, q.inFile = q.count, q.count
	q.push(output{mark: q.count})
	q.target, q.accepted, q.asked, q.newest = newest, rv, began, newest
	if rv == newest {
		q.reached = listed // also where there are no versions
		q.advance(rv, confirmed)
		q.confirmed, q.slept, q.proven = confirmed, q.store.DB().Slept(), confirmed
	}
	q.cond.Broadcast()
	return r, nil
}

// transformListed is the transform for objects of a list.
func (q *Queue) transformListed(obj runtime.Object) (runtime.Object, error) {
	t, err := q.transform(obj)
	if err != nil {
		return nil, err
	}
	ro, ok := t.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("fifo: the transform returned a %T", t)
	}
	return ro, nil
}

func (q *Queue) commit(ctx context.Context, r *boltstore.Relist, rv string, confirmed time.Time) ([]*boltstore.Entry, error) {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	for {
		entries, err := r.Commit(rv, confirmed)
		if err == nil || errors.Is(err, boltstore.ErrClosed) || errors.Is(err, boltstore.ErrReplaced) || errors.Is(err, boltstore.ErrAbandoned) {
			return entries, err
		}
		q.o.Logger.Error(err, "A relist could not be committed, it will be retried", "source", q.store.Source().String())
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-q.closing:
			return nil, errors.Join(ErrClosed, err)
		case <-time.After(backoff.Step()):
		}
	}
}
