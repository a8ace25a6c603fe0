package boltstore

import (
	"cmp"
	"slices"
	"time"
)

// era says which clock dated a run of the records that the program stored itself. Their
// Stored goes up over eras, whatever the clock does, so a record's era is the last one
// that begins at or below its Stored.
type era struct {
	From   int64  `msgpack:"from"`            // the Stored of its first record
	Ahead  int64  `msgpack:"ahead,omitempty"` // what Stored is ahead of the wall clock, in ns
	Boot   string `msgpack:"boot,omitempty"`  // "" once another boot has begun
	Booted int64  `msgpack:"booted,omitempty"`
	Right  bool   `msgpack:"right,omitempty"`
}

// maxEras bounds the eras of a source. Those of one boot are few, and those of earlier
// boots are merged.
const maxEras = 16

// slack is how far the clock may run apart from the time since boot before it counts as
// set.
const slack = int64(time.Second)

// stamp returns the Stored of records that are stored now.
func (m *sourceMeta) stamp(d *device) int64 {
	wall, by := d.clock.Now().UnixNano(), d.now()
	if n := len(m.Eras); n > 0 {
		e := &m.Eras[n-1]
		if at := wall + e.Ahead; e.goesOn(by) && at > m.Stamped-slack {
			e.Right = e.Right || by.Right
			m.Stamped = max(at, m.Stamped)
			return m.Stamped
		}
	}
	from := wall
	if len(m.Eras) > 0 {
		from = max(from, m.Stamped+1)
	}
	m.Eras = append(mergedEras(m.Eras, by.Boot),
		era{From: from, Ahead: from - wall, Boot: by.Boot, Booted: by.Booted, Right: by.Right})
	m.Eras = m.Eras[max(0, len(m.Eras)-maxEras):]
	m.Stamped = from
	return from
}

// goesOn says whether the clock is still that of the era.
func (e *era) goesOn(by dated) bool {
	if by.Boot == "" {
		return e.Boot == "" && e.Right && by.Right
	}
	return dated{Boot: e.Boot, Booted: e.Booted}.sameClock(by)
}

// mergedEras merges neighbours of other boots than the given one where nothing is lost:
// their records have an age by a right clock, or none.
func mergedEras(eras []era, boot string) (merged []era) {
	for _, e := range eras {
		if e.Boot != boot {
			e.Boot, e.Booted = "", 0
		}
		if e.Boot == "" && !e.Right {
			e.Ahead = 0
		}
		if n := len(merged); n > 0 && e.Boot == "" &&
			merged[n-1] == (era{From: merged[n-1].From, Ahead: e.Ahead, Right: e.Right}) {
			continue
		}
		merged = append(merged, e)
	}
	return merged
}

// storedAt returns a record's Stored as a time of this life, zero while its age is not
// known. lost says that it will never be known.
func (m *sourceMeta) storedAt(d *device, stored int64) (at time.Time, lost bool) {
	i, ok := slices.BinarySearchFunc(m.Eras, stored, func(e era, t int64) int { return cmp.Compare(e.From, t) })
	if !ok {
		i--
	}
	if i < 0 || m.everListed() {
		return time.Time{}, true
	}
	e := m.Eras[i]
	ofThisBoot := e.Boot != "" && d.boots != nil && e.Boot == d.boots.Boot()
	if !e.Right && !ofThisBoot {
		return time.Time{}, true
	}
	by := &stamp{Boot: e.Boot, Right: e.Right}
	wall := notAfter(stored-e.Ahead, d.clock.Now().UnixNano())
	if ofThisBoot {
		by.Up = notAfter(wall-e.Booted, int64(d.boots.Uptime()))
	}
	return d.since(wall, by), false
}

// notAfter returns t, or now if t is after it by less than the slack.
func notAfter(t, now int64) int64 {
	if over := t - now; over > 0 && over < slack {
		return now
	}
	return t
}

// now is the time of the work, as records and journal entries keep it.
func (w *work) now(journaled bool) int64 {
	if !journaled {
		return w.meta.stamp(w.s.db.device)
	}
	return w.s.db.opts.Clock.Now().UnixNano()
}
