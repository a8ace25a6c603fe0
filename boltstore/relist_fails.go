package boltstore

import (
	"errors"
	"time"

	"github.com/kubewake/kubewake/internal/listing"
)

// triedAgain is how long a failed write of a relist counts as failing. It is tried again
// sooner, in this relist or the next, unless the server has become unreachable.
const triedAgain = 2 * time.Minute

// relistFailure says why a source's relists cannot be written.
type relistFailure struct {
	err         error // nil: the last write succeeded, and the list has not ended
	since, last time.Time
}

// at is the error at that time, and how long it has lasted.
func (f *relistFailure) at(now time.Time) (lasts time.Duration, err error) {
	if f.err == nil || now.Sub(f.last) > triedAgain {
		return 0, nil
	}
	return max(now.Sub(f.since), 1), f.err
}

// noteMeta is updateMeta for changes that must come before a relist, a confirmation or a
// handler's first call, and for index values. DB.Err and Stats show its result: the
// caller will try again.
func (s *source) noteMeta(fn func(sourceTx, *sourceMeta) error) error {
	return s.db.commit.wrote(s, s.updateMeta(fn))
}

// wrote notes, for DB.Err and Stats, the result of a write that must come before a relist.
func (c *committer) wrote(s *source, err error) error {
	noted := c.noteWrite(s, err)
	if _, disk := errors.AsType[listing.NotWritten](noted); disk {
		c.db.h.counters.failedTry()
	}
	return noted
}

// noteWrite notes, for DB.Err, the result of a write that belongs to a relist or must come
// before one. An error is returned as listing.NotWritten.
func (c *committer) noteWrite(s *source, err error) error {
	for _, other := range []error{ErrClosed, ErrAbandoned, ErrDamaged, ErrNoSource} {
		if errors.Is(err, other) {
			return err // not the disk
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now, f := c.db.opts.Clock.Now(), c.relists[s]
	switch {
	case err == nil && f != nil:
		f.err = nil
	case err != nil:
		if f == nil || now.Sub(f.last) > triedAgain {
			f = &relistFailure{since: now}
			c.relists[s] = f
		}
		f.err, f.last = err, now
		return listing.NotWritten{Err: err}
	}
	return nil
}

// written notes that the relist is in the file.
func (r *Relist) written() {
	c := r.s.db.commit
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.relists, r.s)
}

// relistsFail says why a source's relists cannot be written, and for how long. Of several
// such sources it is the one that has failed longest. The caller holds mu.
func (c *committer) relistsFail(now time.Time) (lasts time.Duration, err error) {
	for _, f := range c.relists {
		if l, e := f.at(now); l > lasts {
			lasts, err = l, e
		}
	}
	return lasts, err
}
