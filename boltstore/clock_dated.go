package boltstore

import "time"

// dated says which clock dated the journal's entries from From on. That clock was right
// all the time, or nobody set it within its boot.
type dated struct {
	From   uint64 `msgpack:"from,omitempty"`
	Boot   string `msgpack:"boot,omitempty"`
	Booted int64  `msgpack:"booted,omitempty"` // when that boot began, by the clock, in unix ns
	Right  bool   `msgpack:"right,omitempty"`
}

// now is the clock that dates entries at present.
func (d *device) now() dated {
	by := dated{Right: d.right()}
	if d.boots != nil {
		by.Boot = d.boots.Boot()
	}
	if by.Boot != "" {
		by.Booted = d.clock.Now().Add(-d.boots.Uptime()).UnixNano()
	}
	return by
}

// sameClock says whether both are of one boot and nobody has set the clock in between.
func (by dated) sameClock(other dated) bool {
	return by.Boot != "" && by.Boot == other.Boot && time.Duration(by.Booted-other.Booted).Abs() < time.Second
}

// datedSince returns m.Dated. Before the first entry a right clock counts as theirs.
func (m *sourceMeta) datedSince() dated {
	if m.Dated == nil {
		return dated{Right: true}
	}
	return *m.Dated
}

// date notes which clock dates the entries that follow.
func (m *sourceMeta) date(d *device) {
	was, now := m.datedSince(), d.now()
	same := was.sameClock(now)
	switch {
	case same && (was.Right || !now.Right):
		return
	case same, was.Right && now.Right:
		now.From = was.From
	default:
		now.From = m.Seq + 1
	}
	m.Dated = &now
}

// datedBy says whether the present clock can tell the age of the entry.
func (m *sourceMeta) datedBy(d *device, seq uint64) bool {
	was, now := m.datedSince(), d.now()
	return d.trust || seq >= was.From && (was.Right && now.Right || was.sameClock(now))
}
