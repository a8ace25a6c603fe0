package boltstore

import (
	"cmp"
	"errors"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Producer hands a source's changes to the committer.
type Producer interface {
	// Take hands over pending changes in order, about max bytes of them. more says that
	// some are left. A nil batch means that nothing is pending. If bookmark is true, a
	// batch may have only a bookmark and no changes: the source is then written anyway,
	// or has not been written for long.
	Take(max int, bookmark bool) (b *Batch, more bool)
	// Committed is called in commit order, once a batch is in the file. It must
	// not block.
	Committed(entries []*Entry)
}

// Batch is what one source adds to a transaction.
type Batch struct {
	Changes []*Change
	// ResourceVersion is the resume point once the changes are stored: the version of
	// the last change, or of a bookmark after it. "" leaves the resume point as it is.
	ResourceVersion string
	// Confirmed is when the server last confirmed this state. Zero leaves the time in
	// the file as it is.
	Confirmed time.Time

	at int64 // Confirmed as the file keeps it, with by
	by *stamp

	local    bool       // the program's own
	replaces bool       // the objects at all other keys go
	mends    bool       // see Filled.Mend
	list     *listBatch // the batch is a part of a relist, nil: it is not
	seen     *string    // LastStoreSyncResourceVersion after this batch; nil leaves it
}

func (b *Batch) size() (n int) {
	for _, c := range b.Changes {
		n += c.Size()
	}
	return n
}

func (b *Batch) memory() (n int) {
	for _, c := range b.Changes {
		n += c.Memory()
	}
	return n
}

// work is a batch on its way into the file.
type work struct {
	s       *source
	b       *Batch
	p       Producer
	meta    *sourceMeta
	entries []*Entry
	size    int // of the batch
	// pending is called once the handlers' pending keys are visible; nil if there are none.
	pending func()
	// mended: damage is no longer in the source.
	mended bool
	// landed: readers see the batch, but the disk reported an error. The batch counts
	// as committed once a later commit succeeds.
	landed bool
}

// direct is a write that its caller waits for.
type direct struct {
	b    *Batch
	done chan error
}

// scope says how much a commit takes.
type scope int

const (
	scopeChanges scope = iota // changes
	scopeDue                  // also told marks and acknowledgements, with bookmarks; bookmarks alone once they are due
	scopeAll                  // everything
)

// round takes work, commits it and keeps what failed for another try. worked says whether
// there was any, size how many bytes of changes it had, and more whether some are left.
func (c *committer) round(take scope) (size int, worked, more bool) {
	c.busy.Lock()
	defer c.busy.Unlock()
	works, waiters, more := c.gather(take)
	if len(works) == 0 {
		return 0, false, false
	}
	for _, w := range works {
		for _, ch := range w.b.Changes {
			w.s.indices.refresh(ch)
		}
		w.size = w.b.size()
		size += w.size
	}
	failed := c.commitRound(works)
	kept := c.keepFailed(works, failed) // before a caller who learns of an error asks for DB.Err
	for _, w := range waiters {
		w.d.done <- failed[w.w]
	}
	return size, true, !kept && more
}

// bookmarkDue says whether a bookmark may be committed on its own: after bookmarkInterval, or
// at least half of it. Those of all sources fall due at the same times since Open, and so
// share commits.
func (c *committer) bookmarkDue(s *source) bool {
	period := func(t time.Time) time.Duration {
		return t.Sub(c.db.whileOpen.since.at) / max(c.db.opts.bookmarkInterval/2, 1)
	}
	return period(c.db.opts.Clock.Now()) > period(s.writer.committed)+1
}

// commitRound commits works in one transaction. If that fails, it commits each alone. It
// returns the errors of the works that failed.
func (c *committer) commitRound(works []*work) map[*work]error {
	failed := map[*work]error{}
	err := c.db.commit.withRoom(func() error {
		return c.try(works)
	})
	if err != nil && len(works) > 1 {
		for _, w := range works {
			if err := c.try([]*work{w}); err != nil {
				failed[w] = err
			}
		}
	} else if err != nil {
		failed[works[0]] = err
	}
	return failed
}

func (c *committer) try(works []*work) error {
	err := c.db.h.update(func(tx *bolt.Tx) error {
		last := map[*source]*sourceMeta{} // as earlier works of this transaction left it
		for _, w := range works {
			if err := w.apply(tx, cmp.Or(last[w.s], w.s.metaNow())); err != nil {
				return err
			}
			last[w.s] = w.meta
		}
		return nil
	}, func() {
		for _, w := range works {
			w.landed = true
			w.s.setMeta(w.meta, w.b.seen)
			if w.mended {
				w.s.health.forget()
				w.s.builder.missing()
			}
			w.s.writer.committed = c.db.opts.Clock.Now()
			if w.pending != nil {
				w.pending()
				w.pending = nil
			}
			if w.b.list != nil {
				w.b.list.visible(w.meta)
			}
		}
	})
	if err != nil {
		c.db.h.counters.failedTry()
		return err
	}
	changes, size := 0, 0
	for _, w := range works {
		changes, size = changes+len(w.b.Changes), size+w.size
	}
	if changes > 0 {
		c.db.h.counters.committed(changes, size)
	}
	for _, w := range works {
		if w.p != nil {
			w.p.Committed(w.entries)
		}
	}
	return nil
}

// commit commits a batch of a relist, alone. The source's producer hands over nothing
// meanwhile.
func (c *committer) commit(w *work) error {
	c.busy.Lock()
	defer c.busy.Unlock()
	for _, ch := range w.b.Changes {
		w.s.indices.refresh(ch)
	}
	w.size = w.b.size()
	return c.noteWrite(w.s, c.db.commit.withRoom(func() error { return c.try([]*work{w}) }))
}

// keepFailed keeps failed work for another try and notes the file's health. kept says
// whether there is any.
func (c *committer) keepFailed(works []*work, failed map[*work]error) (kept bool) {
	c.mu.Lock()
	var errs []error
	again := len(c.retry) // not due yet
	for _, w := range works {
		err, bad := failed[w]
		if !bad {
			continue
		}
		errs = append(errs, err)
		if w.p != nil {
			c.retry = append(c.retry, w)
		}
	}
	kept = len(c.retry) > again
	c.owed = len(c.retry) > 0
	tell := func() {}
	if len(errs) > 0 || again == 0 {
		tell = c.note(errors.Join(errs...))
	}
	if kept {
		c.retryAt = c.db.opts.Clock.Now().Add(c.backoff.Step())
	}
	c.mu.Unlock()
	tell()
	return kept
}

// probe looks whether commits succeed again. It is for the case that only direct writes
// have failed: their callers know, and no work is left to be tried again.
func (c *committer) probe() {
	c.mu.Lock()
	look := c.lastErr != nil && !c.owed
	c.mu.Unlock()
	if look {
		err := c.try(nil)
		c.mu.Lock()
		tell := c.note(err)
		c.mu.Unlock()
		tell()
	}
}

// note notes the file's health. The caller holds mu. Once it has released mu, it calls
// tell, which logs a change. So health checks do not wait for a log on a disk that hangs.
func (c *committer) note(err error) (tell func()) {
	tell = func() {}
	switch {
	case err == nil && c.lastErr != nil:
		tell = func() { c.db.log().Info("Commits succeed again", "file", c.db.path) }
		c.backoff = nil
	case err != nil && c.lastErr == nil:
		tell = func() {
			if c.db.h.met() != nil { // it is said of the file, and is not retried
				return
			}
			c.db.log().Error(err, "Commit failed, it will be retried until it succeeds; nothing is lost", "file",
				c.db.path)
		}
		c.failing = c.db.opts.Clock.Now()
		c.backoff = &wait.Backoff{Duration: 50 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 8,
			Cap: 5 * time.Second}
	}
	if c.lastErr = err; err == nil {
		c.lost = nil
	}
	return tell
}
