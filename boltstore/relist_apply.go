package boltstore

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
)

// listBatch is what a batch of a relist says besides its changes. Any but the last one leaves
// the resume point as it is.
type listBatch struct {
	r  *Relist
	at *listing.Progress // a first list has come that far with the batch; nil: not known
	// unstored counts objects that could not be stored and whose keys are not known.
	unstored uint64
	end      *listEnd // nil: the list goes on
}

// listEnd is what the end of a list says.
type listEnd struct {
	resourceVersion string
	confirmed       time.Time
	mended          bool // damage is no longer in the source
}

// listProgress says how far a first list has come, and of which server.
type listProgress struct {
	At         listing.Progress `msgpack:"at"`
	BeganBy    *stamp           `msgpack:"beganBy,omitempty"`
	ClusterUID string           `msgpack:"clusterUID"`
	Server     string           `msgpack:"server"`
}

// source opens the source. The epoch must be that in which the relist began.
func (r *Relist) source(tx *bolt.Tx) (sourceTx, error) {
	if err := r.s.errReleased(); err != nil {
		return sourceTx{}, err
	}
	if r.epoch != r.s.metaNow().Epoch {
		return sourceTx{}, fmt.Errorf("%w: the objects that it was compared with were removed", ErrAbandoned)
	}
	return r.s.bucket(tx)
}

// startsOver says whether the list will remove what an interrupted one has left.
func (r *Relist) startsOver() bool { return r.first && !r.found.began && r.progress.taken == nil }

// begin prepares m for the batch.
func (l *listBatch) begin(m *sourceMeta) {
	r, s := l.r, l.r.s
	if !r.found.began {
		if r.progress.taken == nil {
			r.unstored.before = m.Noted.Nameless
		}
		switch {
		case m.Contents == contentsNone:
			m.TypeHash, m.Transform = s.form.typeHash, s.form.transformVersion()
		case r.all:
			m.mix(s.form.typeHash)
			m.Formed = m.Seq + 1
		}
	}
	if r.damage.known {
		m.Degraded = cmp.Or(m.Degraded, r.damage.why)
	}
	if r.first {
		m.Contents = contentsPartial
	}
	if m.Noted.Nameless += l.unstored; l.unstored > 0 {
		m.Noted.Why = r.unstored.why
	}
}

// stamp notes in meta how far the list has come, once its changes have been journaled. was
// is the meta before the batch.
func (l *listBatch) stamp(a *applier, was *sourceMeta) error {
	r, m := l.r, a.m
	if l.end != nil {
		return l.stampEnd(a, was)
	}
	if !versions.Newer(m.ResourceVersion, r.progress.newest) && !versions.Newer(m.NewestPage, r.progress.newest) {
		m.NewestPage = r.progress.newest
	}
	if r.first {
		if l.at != nil {
			wall, by := r.s.db.device.at(l.at.Began)
			m.Progress = &listProgress{*l.at, by, r.o.ClusterUID, r.o.Server}
			m.Progress.At.Began = time.Unix(0, wall)
		}
		return nil
	}
	if r.all {
		m.Reformed = m.Seq + 1
	}
	m.markList(was, m.ResourceVersion, m.remark, true, a.now)
	return nil
}

// stampEnd notes in meta that the source was listed, and how.
func (l *listBatch) stampEnd(a *applier, was *sourceMeta) error {
	r, m := l.r, a.m
	if l.end.mended = m.Degraded != ""; l.end.mended {
		if _, err := a.recount(nil); err != nil {
			return err
		}
		m.Degraded = ""
	}
	if r.damage.lost {
		if err := a.src.restartHandlers(m); err != nil {
			return err
		}
	}
	if r.all && r.indices == r.s.indices.set() {
		r.s.indices.complete(m, r.indices.fns) // every record has values for these
	}
	rv := l.end.resourceVersion
	m.markList(was, rv, r.first || r.all || l.end.mended || r.o.NewTimeline || m.remark || was.Local, false, a.now)
	m.Contents, m.Local, m.Progress = contentsWhole, false, nil
	m.ResourceVersion = rv
	if m.NewestPage = ""; versions.Newer(r.progress.newest, rv) {
		m.NewestPage = r.progress.newest
	}
	m.confirm(r.s.db.device, l.end.confirmed)
	r.s.compared.Store(nil)
	m.Compared, m.ComparedBy = r.s.db.device.at(r.s.db.opts.Clock.Now())
	if m.Differed = 0; r.o.Audit && !r.first {
		m.Differed = uint64(r.found.missed + r.Deleted)
	}
	if r.all && !r.first || m.Reformed > 0 && was.Noted.unstored() > 0 { // notes have objects of another form
		m.Reformed = m.Seq + 1
	}
	m.Noted.Nameless -= min(m.Noted.Nameless, r.unstored.before)
	if m.Noted.unstored() == 0 {
		m.Noted.Why = ""
	}
	m.TypeHash, m.Transform = r.s.form.typeHash, r.s.form.transformVersion()
	r.s.coder.setKind(m)
	if r.o.NewTimeline {
		m.Timeline++
	}
	r.end(&m.Facts)
	return nil
}

// visible is called once readers see the batch.
func (l *listBatch) visible(m *sourceMeta) {
	r := l.r
	r.found.began = true
	if l.end == nil {
		return
	}
	r.s.facts.note(r.end)
	r.s.db.warned.lacksFields(m)
	if l.end.mended {
		r.s.health.forget()
	}
	if r.first || r.all {
		r.s.memory.settle()
	}
	r.s.builder.missing()
	r.s.handlers.stir()
}

// mixedType is the type hash of contents that are stored in part under another Go type or
// transform than the rest. No program's type has it.
const mixedType = "mixed"

// mix notes that objects of the type hash come among those that are there.
func (m *sourceMeta) mix(typeHash string) {
	_, was, _ := strings.Cut(m.TypeHash, ofCodec)
	_, is, _ := strings.Cut(typeHash, ofCodec)
	switch {
	case was != is:
		m.TypeHash = mixedType + ofCodec + mixedType // no codec reads all of them
	case is != "":
		m.TypeHash = mixedType + ofCodec + is
	default:
		m.TypeHash = mixedType
	}
}

// dropPartial makes m describe contents of which nothing was stored.
func (m *sourceMeta) dropPartial() {
	m.empty()
	m.Contents, m.Progress, m.NewestPage = contentsNone, nil, ""
}
