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

// Accepted is the version up to which every change has been accepted: where a
// watch goes on in this life of the process. After a restart it is the
// version in the file.
func (j *Journal) Accepted() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.accepted
}

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
func (j *Journal) ExpectResume(rv string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.resume = &rv
}

// Confirm notes that the server has stated rv as its current version, when it
// was asked at the given time: the answer may have been long on its way. Once
// everything up to it has been popped, the journal has synced.
func (j *Journal) Confirm(rv string, asked time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.target, j.asked, j.reached = rv, asked, false
	if atLeast(j.accepted, rv) {
		j.advance(j.accepted, asked)
	}
}

// Doubt notes that the link to the server is broken: nothing is confirmed,
// whatever is accepted, until the server states its version again.
func (j *Journal) Doubt() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.target, j.reached, j.own = "", false, nil
}

// Unconfirm notes that what is in the file is not what the server has confirmed:
// part of it cannot be read, or, with anew, it has been set aside.
func (j *Journal) Unconfirm(anew bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.target, j.reached, j.own = "", false, nil
	j.confirmed, j.proven = time.Time{}, time.Time{}
	if anew {
		j.accepted = ""
	}
}

// Reached says whether what has been accepted is the version that the server
// last stated, or later.
func (j *Journal) Reached() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reached
}

// Confirmed is when the server last confirmed what has been accepted, zero if
// it has not in this life of the process: when it was asked, or an event came.
func (j *Journal) Confirmed() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.confirmed
}

// Age is how long before now the server last confirmed what has been accepted,
// ok whether it has in this life of the process. What the machine slept counts,
// and it does not matter whether its clock was set.
func (j *Journal) Age(now time.Time) (age time.Duration, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	age = now.Sub(j.confirmedAt())
	return age, j.confirmed.Unix() > 0 && age >= 0 // not after a purge
}

// Proven is when the question was asked whose answer last confirmed what has
// been accepted, zero as Confirmed is. Everything of before has been accepted:
// of what an event confirms that is not known, it may have been on its way.
func (j *Journal) Proven() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.proven
}

// Accept declares what is in the file good enough to count as synced, although
// the server has not confirmed it.
func (j *Journal) Accept() {
	j.mu.Lock()
	defer j.mu.Unlock()
	select {
	case <-j.synced:
	default:
		close(j.synced)
	}
}

// Asked is when the server was asked for the version that it last stated.
func (j *Journal) Asked() time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked
}

// ReachedBy is Reached for when rv will have been accepted.
func (j *Journal) ReachedBy(rv string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.reached || j.target != "" && rv != "" && atLeast(rv, j.target)
}

// Replace brings the file in line with a full list; what differs is handed out
// as Added, Updated and Deleted. Announced by ExpectResume it does nothing. A list
// with something that is no runtime.Object is refused.
func (j *Journal) Replace(list []any, rv string) error {
	j.mu.Lock()
	resume := j.resume != nil && *j.resume == rv && len(list) == 0
	j.resume = nil
	j.mu.Unlock()
	if resume {
		return nil
	}
	objs := make([]runtime.Object, 0, len(list))
	for _, o := range list {
		ro, ok := o.(runtime.Object)
		if !ok {
			return fmt.Errorf("fifo: replace the contents of %s: a %T is no runtime.Object; list API objects only", j.store.Source(), o)
		}
		objs = append(objs, ro)
	}
	_, err := j.Relist(context.Background(), boltstore.RelistOptions{}, func(r *boltstore.Relist) (string, string, error) {
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
// may be accepted. Disk errors at the end are retried until the journal closes,
// unless the relist has to begin anew.
func (j *Journal) Relist(ctx context.Context, o boltstore.RelistOptions, list Pages) (*boltstore.Relist, error) {
	return j.relist(ctx, o, time.Time{}, list)
}

// relist confirms at the given time, zero: when its first page was asked for,
// be it in an earlier life, since a list is of that moment, however long it
// takes.
func (j *Journal) relist(ctx context.Context, o boltstore.RelistOptions, confirmed time.Time, list Pages) (*boltstore.Relist, error) {
	listed := confirmed.IsZero()
	if err := j.Flush(ctx); err != nil {
		return nil, err
	}
	failed := 0
	o.OnError = func(_ runtime.Object, err error) {
		j.fail(err)
		if failed++; failed&(failed-1) == 0 { // the first, the second, the fourth, and so on
			j.o.Logger.Error(err, "A listed object cannot be stored, it will be read again", "source", j.store.Source().String(), "objects", failed)
		}
	}
	if j.o.Transform != nil {
		o.Transform = j.transformListed
	}
	r, err := j.store.BeginRelist(o)
	if err != nil {
		return nil, err
	}
	defer r.Abort()
	began, slept := j.o.Now(), j.store.DB().Slept()
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
		confirmed = began.Add(slept - j.store.DB().Slept())
	default:
		if confirmed = j.store.State().Confirmed; confirmed.IsZero() {
			confirmed = time.Unix(0, 0)
		}
	}
	entries, err := j.commit(ctx, r, rv, confirmed)
	if err != nil {
		return nil, err
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.reached = false
	for _, e := range entries {
		j.push(output{delta: &cache.Delta{Type: e.Type, Object: e}, size: e.Size()})
	}
	if entries == nil {
		j.push(output{delta: &cache.Delta{Type: cache.ReplacedAll, Object: Relisted{ResourceVersion: rv, Anew: r.Anew()}}})
	}
	j.count++
	j.lastChange, j.inFile = j.count, j.count
	j.push(output{mark: j.count})
	j.target, j.accepted, j.asked, j.newest = newest, rv, began, newest
	if rv == newest {
		j.reached = listed // also where there are no versions
		j.advance(rv, confirmed)
		j.confirmed, j.slept, j.proven = confirmed, j.store.DB().Slept(), confirmed
	}
	j.cond.Broadcast()
	return r, nil
}

// transformListed is the transform for objects of a list.
func (j *Journal) transformListed(obj runtime.Object) (runtime.Object, error) {
	t, err := j.transform(obj)
	if err != nil {
		return nil, err
	}
	ro, ok := t.(runtime.Object)
	if !ok {
		return nil, fmt.Errorf("fifo: the transform returned a %T", t)
	}
	return ro, nil
}

func (j *Journal) commit(ctx context.Context, r *boltstore.Relist, rv string, confirmed time.Time) ([]*boltstore.Entry, error) {
	backoff := wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8, Cap: 5 * time.Second}
	for {
		entries, err := r.Commit(rv, confirmed)
		if err == nil || errors.Is(err, boltstore.ErrClosed) || errors.Is(err, boltstore.ErrReplaced) || errors.Is(err, boltstore.ErrAbandoned) {
			return entries, err
		}
		j.o.Logger.Error(err, "A relist could not be committed, it will be retried", "source", j.store.Source().String())
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-j.closing:
			return nil, errors.Join(ErrClosed, err)
		case <-time.After(backoff.Step()):
		}
	}
}

// Flush waits until everything accepted is in the file, bookmarks included.
func (j *Journal) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.cond.Broadcast()
	})
	defer stop()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flushing++
	defer func() { j.flushing-- }()
	for ctx.Err() == nil && (len(j.pending) > 0 || len(j.inflight) > 0) {
		j.store.Flush()
		j.cond.Wait()
	}
	return ctx.Err()
}
