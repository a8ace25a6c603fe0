package boltstore

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/objmeta"
)

// The writes of cache.Store are for callers that fill a store themselves, and return once
// committed. While a server feeds the source, they return ErrFed. In an informer's source
// that is not fed yet they are journaled, and take the resume point away.

// Add stores obj, whatever was at its key.
func (s *Claimed) Add(obj any) error { return s.Filled.writeOne(cache.Added, obj) }

// Update does what Add does.
func (s *Claimed) Update(obj any) error { return s.Filled.writeOne(cache.Updated, obj) }

// Delete removes the object at the key of obj. obj may be anything that has a key, such
// as a cache.ExplicitKey.
func (s *Claimed) Delete(obj any) error { return s.Filled.writeOne(cache.Deleted, obj) }

// writer is who writes the source, and what waits to be written. s.mu guards what has no lock.
type writer struct {
	s         *source
	producer  Producer
	expectant bool           // see ExpectProducer
	current   sync.Mutex     // see makeCurrent
	underWay  sync.WaitGroup // writes by the program
	queue     []*direct
	seen      *string     // version of the program's last write, nil once the server's is newer
	awake     atomic.Bool // wake was called, or something was left, since the committer last took
	stale     atomic.Uint64
	committed time.Time // the last commit; only the committer uses it
}

// prepare is Prepare for a write by the program. A delete needs only the key.
func (w *writer) prepare(typ cache.DeltaType, obj any) (*Change, error) {
	c, err := w.identify(typ, obj)
	if err != nil {
		return nil, err
	}
	if typ == cache.Deleted {
		c.obj = nil
	}
	return w.finish(c)
}

func (s Filled) writeOne(typ cache.DeltaType, obj any) error {
	c, err := s.writer.prepare(typ, obj)
	if err != nil {
		return err
	}
	// without ResourceVersion: an object's version is no resume point
	return s.write(&Batch{Changes: []*Change{c}, seen: seenIn(obj)})
}

// seenIn is the version of an object, nil if it can have none.
func seenIn(obj any) *string {
	m := objmeta.Of(obj)
	if m == nil {
		return nil
	}
	rv := m.GetResourceVersion()
	return &rv
}

// makeCurrent removes contents of another Go type or transform before the program
// writes to a source that it fills itself. No list would replace them, and the new
// objects would be hidden with them.
func (s Filled) makeCurrent() error {
	if !s.form.hidden() {
		return nil
	}
	s.writer.current.Lock()
	defer s.writer.current.Unlock()
	why := s.Outdated()
	if !s.form.hidden() || !s.FilledByProgram() {
		return nil
	}
	s.db.log().Info("Warning: what the program has stored is removed, since it is outdated",
		"source", s.name.String(), "reason", why)
	return Upstream(s).Empty()
}

// write commits a batch of the program's and waits for the commit.
func (s Filled) write(b *Batch) error {
	if len(b.Changes) > 0 || b.replaces {
		if err := s.makeCurrent(); err != nil {
			return err
		}
	}
	b.local = true
	d := &direct{b: b, done: make(chan error, 1)}
	s.mu.Lock()
	if s.ending() { // what comes from now on must not keep Close or Release waiting
		s.mu.Unlock()
		return fmt.Errorf("boltstore: write to %s: its informer has ended and released it, or the file is being "+
			"closed: %w", s.name, ErrClosed)
	}
	if s.writer.producer != nil {
		s.mu.Unlock()
		return s.writer.errFed()
	}
	s.writer.underWay.Add(1)
	defer s.writer.underWay.Done()
	s.writer.queue = append(s.writer.queue, d)
	s.mu.Unlock()
	s.wake(true)
	select {
	case err := <-d.done:
		return err
	case <-s.db.commit.ended:
		select {
		case err := <-d.done:
			return err
		default:
			return fmt.Errorf("boltstore: %s: %w", s.name, ErrClosed)
		}
	}
}

// take returns the next direct write, nil if none waits.
func (w *writer) take() *direct {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if len(w.queue) == 0 {
		return nil
	}
	d := w.queue[0]
	w.queue = w.queue[1:]
	return d
}

func (w *writer) fail(err error) {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	for _, d := range w.queue {
		d.done <- err
	}
	w.queue = nil
}

// Transaction applies several writes in one commit. The error names those that cannot be
// stored; the others are committed. A write of an unknown type does nothing.
func (s *Claimed) Transaction(txns ...cache.Transaction) *cache.TransactionError {
	good, errs := s.Filled.transact(len(txns), func(i int) (*Change, any, error) {
		c, err := s.writer.prepareOf(txns[i])
		return c, txns[i].Object, err
	})
	if len(errs) == 0 {
		return nil
	}
	return &cache.TransactionError{SuccessfulIndices: good, TotalTransactions: len(txns), Errors: errs}
}

// transact commits what prepare makes of n writes. Each may be no change.
func (s Filled) transact(n int, prepare func(i int) (c *Change, obj any, err error)) (good []int, errs []error) {
	b := &Batch{}
	good = []int{}
	for i := range n {
		c, obj, err := prepare(i)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		good, b.seen = append(good, i), seenIn(obj)
		if c != nil {
			b.Changes = append(b.Changes, c)
		}
	}
	if len(good) > 0 {
		if err := s.write(b); err != nil {
			good, errs = []int{}, append(errs, err)
		}
	}
	return good, errs
}

// prepareOf is prepare for a transaction, nil for one that does nothing.
func (w *writer) prepareOf(t cache.Transaction) (*Change, error) {
	switch t.Type {
	case cache.TransactionTypeAdd, cache.TransactionTypeUpdate:
		return w.prepare(cache.Updated, t.Object)
	case cache.TransactionTypeDelete:
		return w.prepare(cache.Deleted, t.Object)
	}
	_, err := w.identify(cache.Updated, t.Object)
	return nil, err
}

// Replace makes objs the whole contents of the source, in one commit. resourceVersion
// becomes the resume point unless the source is an informer's.
func (s *Claimed) Replace(objs []any, resourceVersion string) error {
	last := map[string]*Change{}
	for _, obj := range objs {
		c, err := s.Feed.Prepare(cache.Replaced, obj)
		if err != nil {
			return err
		}
		last[c.key] = c
	}
	return s.Filled.replaceBy(last, resourceVersion)
}

// Bookmark notes that everything up to rv has been stored. rv becomes the resume point
// as in Replace.
func (s *Claimed) Bookmark(rv string) {
	if err := s.Filled.BookmarkErr(rv); err != nil && !errors.Is(err, ErrClosed) {
		s.db.log().Error(err, "Bookmark not stored", "source", s.name.String())
	}
}

// BookmarkErr is Bookmark with its error.
func (s Filled) BookmarkErr(rv string) error {
	return s.write(&Batch{ResourceVersion: rv, seen: &rv})
}

// AddIndexers adds indices, at any time. It returns once readers find all objects by
// them: it builds them in the file, locally and in steps, and writes only records whose
// values differ. Those without a version are built beside other work, and reads by them wait.
func (s *Claimed) AddIndexers(add cache.Indexers) error {
	if err := s.errReleased(); err != nil {
		return err
	}
	add = maps.Clone(add) // the caller may change its map while the file's indices are built
	if err := s.builder.add(add); err != nil {
		return err
	}
	if err := s.builder.buildVersioned(add); err != nil {
		s.builder.remove(add)
		return fmt.Errorf("boltstore: %s: %w", s.name, err)
	}
	return nil
}

// errReleased returns an error once another claim may have written. The store must then
// not write the state that it remembers.
func (s *source) errReleased() error {
	if s.db.claims.find(s.id) != s {
		return fmt.Errorf("boltstore: %s was released: %w", s.name, ErrClosed)
	}
	return nil
}

// bucket returns the source's buckets. If a claimed source has none, damage has taken
// them.
func (s *source) bucket(tx *bolt.Tx) (sourceTx, error) {
	src, ok := s.db.h.source(tx, s.id)
	switch {
	case ok:
		return src, nil
	case s.errReleased() == nil:
		return src, fmt.Errorf("%w: %w: %s", errTripped, ErrNoSource, s.name)
	}
	return src, fmt.Errorf("%w: %s", ErrNoSource, s.name)
}

// updateMeta changes the source in its own transaction.
func (s *source) updateMeta(fn func(sourceTx, *sourceMeta) error) error {
	return s.updateMetaThen(fn, func() {})
}

// updateMetaThen is updateMeta. It calls visible once readers see the change.
func (s *source) updateMetaThen(fn func(sourceTx, *sourceMeta) error, visible func()) error {
	var m *sourceMeta
	return s.db.h.update(func(tx *bolt.Tx) error {
		if err := s.errReleased(); err != nil {
			return err
		}
		src, err := s.bucket(tx)
		if err != nil {
			return err
		}
		m = s.metaNow().clone()
		if err := fn(src, m); err != nil {
			return err
		}
		return src.putMeta(m)
	}, func() {
		s.setMeta(m, nil)
		visible()
	})
}

// noteWithList changes meta in memory, if the source has not been listed or written to, and
// says whether it has. The next commit, such as the first list's, begins with the meta in
// memory and writes the change, too. So a program that starts with many new sources waits for
// the disk less often. It is for what the next life finds out again if this one ends before.
func (s *source) noteWithList(fn func(*sourceMeta)) bool {
	s.db.h.writeMu.Lock()
	defer s.db.h.writeMu.Unlock()
	m := s.metaNow()
	if m.Contents != contentsNone || s.errReleased() != nil {
		return false
	}
	m = m.clone()
	fn(m)
	s.setMeta(m, nil)
	return true
}
