package boltstore

import (
	"bytes"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/format"
)

// keyState is the state in which a change finds its key.
type keyState struct {
	k []byte
	// item is the record at the key, nil if there is none, raw its bytes.
	item    *format.Record
	raw     []byte
	damaged bool // there is one that cannot be read
	// base is the object that handlers know, nil if there is none: the record, or the one
	// that is hidden in the key's note.
	base    *format.Record
	baseRaw []byte
}

// look finds the state of the key at k.
func (a *applier) look(k []byte) (was keyState) {
	was.k = k
	raw := a.in.Items.Get(k)
	if raw == nil {
		return was
	}
	_, r, err := a.s.coder.owner.ParseRecord(k, raw)
	if was.damaged = err != nil; !was.damaged {
		was.item, was.raw, was.base, was.baseRaw = r, raw, r, raw
	} else {
		// Its index entries and digest cannot be subtracted. The source is degraded
		// until it is listed.
		a.s.health.meet(err)
		a.m.Degraded = err.Error()
	}
	return was
}

// unchanged says whether c would store the same as r.
func (a *applier) unchanged(c *Change, r *format.Record) bool {
	if c.typ == cache.Deleted || c.rv != r.ResourceVersion || c.uid != r.UID || r.Codec != a.s.coder.codec.ID() {
		return false
	}
	var is format.Record
	c.fill(&is)
	switch {
	case is.UnpackedSize() != r.UnpackedSize():
		return false
	case is.Packed == r.Packed && bytes.Equal(is.Payload, r.Payload):
		return true
	}
	was, err := plain(r, nil)
	if err != nil {
		return false
	}
	next, err := plain(&is, nil)
	return err == nil && bytes.Equal(next, was)
}
