package boltstore

import "time"

// dated says by which clock the journal's entries from From on are dated: one that
// was right all the time, or one that nobody has set in its boot.
type dated struct {
	From   uint64 `msgpack:"from,omitempty"`
	Boot   string `msgpack:"boot,omitempty"`
	Booted int64  `msgpack:"booted,omitempty"` // when that boot began, by the clock, in unix ns
	Right  bool   `msgpack:"right,omitempty"`
}

// now is the clock by which entries are dated at present.
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

// sameClock says whether nobody has set the clock between the two, within a boot.
func (by dated) sameClock(other dated) bool {
	return by.Boot != "" && by.Boot == other.Boot && time.Duration(by.Booted-other.Booted).Abs() < time.Second
}

// datedSince is what the file says of its entries' dates. Those of earlier
// versions of this library count as by a clock that was right.
func (m *sourceMeta) datedSince() dated {
	if m.Dated == nil {
		return dated{Right: true}
	}
	return *m.Dated
}

// date notes by which clock the entries that follow are dated.
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

// datedBy says whether the present clock tells the age of the entry.
func (m *sourceMeta) datedBy(d *device, seq uint64) bool {
	was, now := m.datedSince(), d.now()
	return d.trust || seq >= was.From && (was.Right && now.Right || was.sameClock(now))
}
