package boltstore

import (
	"bytes"
	"cmp"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/versions"
)

// Unstored makes a change that notes that obj, from an event or a list, could not be
// stored, and why. The file keeps what it has of the object.
func (s Feed) Unstored(obj any, why error) *Change { return s.writer.unstored(obj, why) }

func (w *writer) unstored(obj any, why error) *Change {
	c, err := w.identify(cache.Updated, obj)
	if err != nil {
		c = &Change{nameless: true}
	}
	return c.unstoredFor(why)
}

func (c *Change) unstoredFor(why error) *Change {
	return &Change{typ: cache.Updated, key: c.key, rv: c.rv, uid: c.uid, nameless: c.nameless,
		unstored: cmp.Or(short(why), "unknown")}
}

// noteUnstored notes an object that cannot be stored. Its previous record stays, or is kept
// in the note if it must not be served.
func (a *applier) noteUnstored(c *Change, was keyState, before *note) error {
	if c.nameless {
		a.m.Noted.Nameless++
		a.m.Noted.Why = c.unstored
		return nil
	}
	n := &note{Key: c.key, Time: a.now, Why: c.unstored, RV: c.rv}
	if before != nil {
		n.Record = before.Record
		if !a.listed && versions.Newer(before.RV, c.rv) {
			n.RV, n.Why = before.RV, before.Why
		}
	}
	if c.hide && was.item != nil {
		a.m.remark = true // no entry says that readers do not see it any more
		n.Record = bytes.Clone(plainRaw(a.s.coder.owner, c.key, was.raw))
		if err := a.takeItem(c.key, was); err != nil {
			return err
		}
	}
	return a.putNote(was.k, n)
}

// settleNote updates the note of a key after a change: the object was stored, or is
// gone.
func (a *applier) settleNote(c *Change, was keyState, before *note) error {
	if before == nil {
		return nil
	}
	var n *note
	if !a.listed && c.rv != "" && versions.Newer(before.RV, c.rv) { // the change is of an earlier version
		n = &note{Key: c.key, Time: before.Time, Why: before.Why, RV: before.RV}
	}
	return a.putNote(was.k, n)
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

// noteOf returns the note of a key. A damaged one may hide a record, so the source becomes
// degraded and is listed.
func (a *applier) noteOf(k []byte) *note {
	if !a.mayNote() {
		return nil
	}
	n := a.in.notes.get(k)
	if n != nil && n.damage != nil {
		a.s.health.meet(n.damage)
		a.m.Degraded = n.damage.Error()
	}
	return n
}
