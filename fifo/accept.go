package fifo

import (
	"errors"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/objmeta"
	"github.com/kubewake/kubewake/internal/versions"
)

// Add accepts an added object. It blocks while the batch is full, or a list is under way,
// and returns ErrClosed once the queue is closed. An object that cannot be stored is an
// error. Failed counts it, the file notes it, and later changes do not wait for it.
func (q *Queue) Add(obj any) error { return q.accept(cache.Added, obj) }

// Update accepts a changed object; see Add.
func (q *Queue) Update(obj any) error { return q.accept(cache.Updated, obj) }

// Delete accepts the final state of an object, or a
// cache.DeletedFinalStateUnknown; see Add.
func (q *Queue) Delete(obj any) error { return q.accept(cache.Deleted, obj) }

func (q *Queue) accept(typ cache.DeltaType, obj any) error {
	it := acceptedItem{rv: versionOf(obj), came: q.now()}
	if _, tombstone := obj.(cache.DeletedFinalStateUnknown); !tombstone &&
		(it.rv == "" || typ == cache.Deleted && q.passed(it.rv)) {
		q.store.Upstream.NoteFacts(func(f *listing.Facts) { f.Stands = true })
	}
	var err error
	if it.change, err = q.prepare(typ, obj); err != nil {
		q.fail(err)
		q.log.Error(err, "An object cannot be stored, it will be read again", "source", q.store.Source().String())
		known := false
		if it.change != nil { // it is gone all the same
			known, _ = q.store.Feed.Knows(it.change) // after an error it is read again
		}
		if !known { // perhaps a transform has given it another key
			it.change = q.store.Feed.Unstored(obj, err)
		}
	}
	if closed := q.enqueue(it); closed != nil {
		return closed
	}
	return err
}

// passed says whether a version is certainly the accepted one or older.
func (q *Queue) passed(rv string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.version.accepted != "" && atLeast(q.version.accepted, rv)
}

func versionOf(obj any) string {
	if m := objmeta.Of(obj); m != nil && m.GetResourceVersion() != anyVersion {
		return m.GetResourceVersion()
	}
	return ""
}

// anyVersion is no version: a watch from it begins anywhere, and misses deletes.
const anyVersion = "0"

func (q *Queue) prepare(typ cache.DeltaType, obj any) (*boltstore.Change, error) {
	var c *boltstore.Change
	q.store.Feed.ShowsKind(obj)
	whole, err := q.transformed(obj)
	if err == nil {
		c, err = q.store.Feed.Prepare(typ, whole)
	}
	if err == nil || typ != cache.Deleted {
		return c, err
	}
	// The final state cannot be stored, but the object is gone all the same.
	c, keyErr := q.store.Feed.PrepareGone(obj)
	if keyErr != nil {
		return nil, err
	}
	return c, err
}

// transformed calls the transform, never twice at a time, and in a goroutine of its own: a
// function that ends its goroutine has failed, and does not end the caller's.
func (q *Queue) transformed(obj any) (out any, err error) {
	if _, tombstone := obj.(cache.DeletedFinalStateUnknown); tombstone || q.transform == nil {
		return obj, nil
	}
	q.transforming.Lock()
	defer q.transforming.Unlock()
	given := reflect.TypeOf(obj)
	err = errExited
	var ended sync.WaitGroup
	ended.Go(func() { out, err = q.callTransform(obj) })
	if ended.Wait(); err != nil {
		return nil, err
	}
	if is := reflect.TypeOf(out); is != given && is != q.store.ObjectType() {
		return nil, fmt.Errorf("fifo: the transform returned %v, and the file keeps %v: let it return that type; "+
			"the informer does not sync until then", is, q.store.ObjectType())
	}
	return out, nil
}

var errExited = errors.New("fifo: the transform has ended its goroutine (runtime.Goexit, t.FailNow)")

func (q *Queue) callTransform(obj any) (out any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("fifo: the transform panicked: %v", r)
		}
	}()
	if out, err = q.transform(obj); err != nil {
		return nil, fmt.Errorf("fifo: transform: %w", err)
	}
	return out, nil
}

func (q *Queue) fail(err error) {
	var key cache.KeyError
	if errors.As(err, &key) { // its text has the whole object
		err = fmt.Errorf("fifo: the key function failed: %w", key.Err)
	}
	q.mu.Lock()
	q.failure.count++
	q.failure.last, q.failure.at = err, q.counts.accepted+1
	q.mu.Unlock()
	q.tellFailure()
}

func (q *Queue) tellFailure() {
	select {
	case q.failure.came <- struct{}{}:
	default:
	}
}

// Unstored returns a channel that gets a value when an object could not be stored. The
// receiver lists again as long as the store has UnstoredObjects.
func (q *Queue) Unstored() <-chan struct{} { return q.failure.came }

// Failed counts the events and listed objects that could not be stored in this life of
// the process. It also returns the last one's error. That is nil while the event is held
// back (see ConfirmListed), and once all of these objects are in the file or gone.
func (q *Queue) Failed() (uint64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.counts.inFile >= q.failure.at && q.store.Feed.UnstoredObjects() == 0 {
		q.failure.last = nil
	}
	if q.hold.until != "" && q.failure.at > q.counts.inFile {
		return q.failure.count, nil
	}
	return q.failure.count, q.failure.last
}

func (q *Queue) enqueue(it acceptedItem) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.batch.bytes >= q.most || q.listing {
		slept := q.store.Upstream.Slept()
		for (q.batch.bytes >= q.most || q.listing) && !q.closed {
			if !q.listing {
				q.release() // more is held than fits
			}
			q.cond.Wait()
		}
		it.came = it.came.Add(slept - q.store.Upstream.Slept())
	}
	if q.closed {
		return ErrClosed
	}
	if versions.Newer(it.rv, q.version.newest) {
		q.version.newest = it.rv
		if it.change != nil {
			it.change.TellUnknown()
		}
	}
	q.batch.pending = append(q.batch.pending, it)
	q.counts.accepted++
	if it.rv != "" {
		q.advance(it.rv, it.came)
	}
	if it.change != nil {
		q.counts.lastChange = q.counts.accepted
		q.batch.bytes += it.change.Memory()
		if q.hold.until == "" {
			q.wake(q.urgent())
		}
	}
	q.holdUntil(it.rv)
	q.noteLength()
	return nil
}

// urgent says whether the pending changes must be committed at once: nothing else fits,
// or the first sync waits for them.
func (q *Queue) urgent() bool {
	return q.batch.bytes >= q.most || q.counts.syncAt != nil && q.counts.done < *q.counts.syncAt
}

// Bookmark notes that every change up to rv has been accepted. The next commit of
// the source writes it, or one within ten minutes. One of an earlier version says nothing.
func (q *Queue) Bookmark(rv string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.listing && !q.closed {
		q.cond.Wait()
	}
	switch {
	case q.closed:
		return ErrClosed
	case rv == "" || rv == anyVersion || versions.Newer(q.version.accepted, rv):
		return nil
	}
	if versions.Newer(rv, q.version.newest) {
		q.version.newest = rv
	}
	if n := len(q.batch.pending); n > 0 && q.batch.pending[n-1].change == nil {
		q.batch.pending[n-1].rv = rv
	} else {
		q.batch.pending = append(q.batch.pending, acceptedItem{rv: rv})
		q.counts.accepted++
	}
	q.advance(rv, q.now())
	q.holdUntil(rv)
	q.peel()
	return nil
}
