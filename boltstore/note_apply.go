package boltstore

import (
	"bytes"
	"cmp"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/versions"
)

// Unstored makes a change that notes that obj, from an event or a list, could not be
// stored, and why. The file keeps what it has of the object.
func (s *Claimed) Unstored(obj any, why error) *Change {
	c, err := s.identify(cache.Updated, obj)
	if err != nil {
		c = &Change{nameless: true}
	}
	return c.unstoredFor(why)
}

func (c *Change) unstoredFor(why error) *Change {
	return &Change{typ: cache.Updated, key: c.key, rv: c.rv, uid: c.uid, nameless: c.nameless, unstored: cmp.Or(short(why), "unknown")}
}

// noteUnstored notes an object that cannot be stored. Its previous record stays, or is kept
// in the note if it must not be served.
func (a *applier) noteUnstored(c *Change, was keyState, before *note) error {
	if c.nameless {
		a.m.Noted.Nameless++
		a.m.Noted.Why = c.unstored
		return nil
	}
	n := &note{Key: c.key, Time: a.now, Why: c.unstored, Unstored: true, RV: c.rv}
	if before != nil {
		n.Indices, n.Record = before.Indices, before.Record
		if !a.listed && versions.Newer(before.RV, c.rv) {
			n.RV, n.Why = before.RV, before.Why
		}
	}
	if c.hide {
		n.Indices = nil
	}
	if c.hide && was.item != nil {
		a.m.remark = true // no entry says that readers do not see it any more
		n.Record = bytes.Clone(plainRaw(a.s.owner, c.key, was.raw))
		if err := a.takeItem(c.key, was); err != nil {
			return err
		}
	}
	return a.putNote(was.k, n)
}

// settleNote updates the note of a key after a change: the object was stored, or is
// gone.
func (a *applier) settleNote(c *Change, was keyState, before *note) error {
	var n *note
	if before != nil && before.Unstored && a.keepsNote(c, before) {
		n = &note{Key: c.key, Time: before.Time, Why: before.Why, Unstored: true, RV: before.RV}
	}
	failed := c.failed
	if c.typ == cache.Deleted {
		failed = nil
	}
	if len(failed) > 0 {
		n = cmp.Or(n, &note{Key: c.key})
		n.Indices, n.Time = failed, a.now
		if !n.Unstored {
			n.Why = cmp.Or(c.failedWhy, before.why())
		}
	}
	if before == nil && n == nil {
		return nil
	}
	return a.putNote(was.k, n)
}

func (n *note) why() string {
	if n == nil {
		return ""
	}
	return n.Why
}

// keepsNote says whether the note of an unstored object stays after the change. It
// stays if the change is of an earlier version.
func (a *applier) keepsNote(c *Change, before *note) bool {
	return !a.listed && c.rv != "" && versions.Newer(before.RV, c.rv)
}

// putNote stores the note of a key. If n is nil, it removes the note.
func (a *applier) putNote(k []byte, n *note) error {
	var old *note
	if a.mayNote() {
		old = a.in.notes.get(k)
	}
	return a.in.notes.put(a.m, k, n, old)
}

// mayNote says whether there may be notes. A degraded source's counts mean nothing.
func (a *applier) mayNote() bool { return !a.m.Noted.none() || a.m.Degraded != "" }

// noteOf returns the note of a key. A damaged note cannot be subtracted from the counts,
// and does not say which indices lack the object. So the source becomes degraded and is
// listed.
func (a *applier) noteOf(k []byte) *note {
	if !a.mayNote() {
		return nil
	}
	n := a.in.notes.get(k)
	if n != nil && n.damage != nil {
		a.s.damaged(n.damage)
		a.m.Degraded = n.damage.Error()
		a.m.doubtIndices()
	}
	return n
}
