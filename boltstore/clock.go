package boltstore

import (
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore/internal/osfile"
)

// Ages must be right on a device whose clock restarts at each boot. Within a boot the
// time since boot gives an age, including sleep. Across boots the wall clock does, if
// it was known to be right both times. Otherwise an age is not known.

// DeviceClock is an Options.Clock for tests. It stands for a device that boots and
// sleeps. Any other clock but the real one counts as right.
type DeviceClock interface {
	clock.WithTicker
	// Boot names this boot of the machine, "" if it is not known.
	Boot() string
	// Uptime is how long ago the machine booted. Slept is how much of that it
	// slept, while monotonic time stood still.
	Uptime() time.Duration
	Slept() time.Duration
	// Synchronised says whether the system vouches for the wall clock.
	Synchronised() bool
}

// stamp is kept in the file beside a time by the wall clock. It is nil in files that
// earlier versions wrote.
type stamp struct {
	Boot  string `msgpack:"boot,omitempty"`
	Up    int64  `msgpack:"up,omitempty"`    // ns since that boot; negative if before it
	Right bool   `msgpack:"right,omitempty"` // the wall clock was known to be right
}

// device notes times so that a later life can tell their ages.
type device struct {
	clock clock.WithTicker
	boots DeviceClock // nil: only the clock is known, and counts as right
	trust bool

	mu      sync.Mutex
	agreed  moment        // when a server last agreed with the clock
	good    moment        // when slept last knew the clock to be right
	stopped time.Duration // in this life, as far as it is known
}

// moment is a time of this life. asleep is how long the machine had slept by then.
type moment struct {
	at     time.Time
	asleep time.Duration
}

// set is by how much the clock has been set between two moments.
func (m moment) set(to moment) time.Duration {
	return to.at.Round(0).Sub(m.at.Round(0)) - to.at.Sub(m.at) - (to.asleep - m.asleep)
}

// agreement is how far a server's clock may differ from the device's.
const agreement = time.Minute

func newDevice(o Options) *device {
	d := &device{clock: o.Clock, trust: o.TrustClock}
	switch c := o.Clock.(type) {
	case DeviceClock:
		d.boots = c
	case clock.RealClock:
		d.boots = machine{c}
	case *clock.RealClock:
		d.boots = machine{*c}
	}
	return d
}

// machine is the real machine.
type machine struct{ clock.RealClock }

// Boot implements DeviceClock.
func (machine) Boot() string { return osfile.Boot() }

// Uptime implements DeviceClock.
func (machine) Uptime() time.Duration { return osfile.Uptime() }

// Slept implements DeviceClock.
func (machine) Slept() time.Duration { return osfile.Slept() }

// Synchronised implements DeviceClock.
func (machine) Synchronised() bool { return osfile.Synchronised() }

func (d *device) moment() moment {
	m := moment{at: d.clock.Now()}
	if d.boots != nil {
		m.asleep = d.boots.Slept()
	}
	return m
}

// slept is how long the machine has slept since it booted, and been stopped in this life.
// A virtual machine that is stopped notices nothing of that, until a time service sets its
// clock. If the clock was right before and is right again, that shows for how long.
func (d *device) slept() time.Duration {
	now := d.moment()
	d.mu.Lock()
	stopped, seen := d.stopped, !d.good.at.IsZero() && d.good.set(now).Abs() <= agreement
	d.mu.Unlock()
	if seen || !d.right() {
		return now.asleep + stopped
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.good.at.IsZero():
		d.good = now
	case !now.at.Before(d.good.at): // otherwise another caller was faster
		d.stopped += max(d.good.set(now), 0)
		d.good = now
	}
	return now.asleep + d.stopped
}

// right says whether the wall clock is known to be right.
func (d *device) right() bool {
	return d.trust || d.boots == nil || d.boots.Synchronised() || d.agrees()
}

// agrees says whether a server has agreed with the clock in this life, and
// nobody has set it since.
func (d *device) agrees() bool {
	d.mu.Lock()
	agreed := d.agreed
	d.mu.Unlock()
	return !agreed.at.IsZero() && agreed.set(d.moment()).Abs() <= agreement
}

// ServerTime notes the present time as a server states it. If the device's clock agrees,
// it counts as right until it is set.
func (s Upstream) ServerTime(t time.Time) { s.db.device.serverTime(t) }

func (d *device) serverTime(t time.Time) {
	now := d.moment()
	d.mu.Lock()
	defer d.mu.Unlock()
	if now.at.Round(0).Sub(t).Abs() > agreement {
		now = moment{}
	}
	d.agreed = now
}

// Slept is how long the machine has slept since it booted. Monotonic time, by which
// time.Time computes differences, does not contain sleep. Nor does it contain the time for
// which a virtual machine was stopped. Slept contains that, too, as far as it was in this
// life, once the clock is known to be right again.
func (s Upstream) Slept() time.Duration { return s.db.device.slept() }

// Sleeping returns a function that says by how much Slept has grown since. A stop that has
// become known meanwhile does not count if the clock was already set after it: that was
// before.
func (s Upstream) Sleeping() (slept func() time.Duration) { return s.db.device.sleeping() }

func (d *device) sleeping() func() time.Duration {
	began, before := d.moment(), d.slept()
	return func() time.Duration {
		grown, now := d.slept()-before, d.moment()
		if d.right() && began.set(now).Abs() <= agreement {
			return now.asleep - began.asleep
		}
		return grown
	}
}

// at returns the form in which the file keeps a time of this life: wall time and stamp. A
// zero time has no stamp.
func (d *device) at(t time.Time) (wall int64, m *stamp) {
	if t.IsZero() || t.UnixNano() <= 0 {
		return 0, nil
	}
	if d.boots == nil {
		return t.UnixNano(), &stamp{Right: true}
	}
	now := d.clock.Now()
	ago := now.Sub(t)
	m = &stamp{Boot: d.boots.Boot(), Right: d.right()}
	if m.Boot != "" {
		m.Up = int64(d.boots.Uptime() - ago)
	}
	// By the present clock, which may have been set since.
	by := now.Round(0).Add(-ago)
	if by.Sub(t.Round(0)).Abs() < time.Second {
		by = t
	}
	return by.UnixNano(), m
}

// age returns how long ago a kept time was. ok says whether that is known.
func (d *device) age(wall int64, m *stamp) (age time.Duration, ok bool) {
	if wall <= 0 {
		return 0, false
	}
	past := d.clock.Now().Round(0).Sub(time.Unix(0, wall))
	rightNow := past >= 0 && (m == nil || m.Right || d.trust) && d.right()
	if m != nil && m.Boot != "" && d.boots != nil && m.Boot == d.boots.Boot() {
		if up := d.boots.Uptime() - time.Duration(m.Up); up >= 0 {
			if rightNow {
				up = max(up, past) // a stopped virtual machine does not count as asleep
			}
			return up, true
		}
	}
	return past, rightNow
}

// since returns a kept time as a time of this life, zero if its age is not known.
func (d *device) since(wall int64, m *stamp) time.Time {
	if age, ok := d.age(wall, m); ok {
		return d.clock.Now().Add(-age)
	}
	return time.Time{}
}

// dateAnew dates a use once the clock is right, if the clock may have been wrong at the use.
// A use whose age is known within this boot keeps that age. Any other is dated as of now,
// with a stamp by which it has no age.
func (d *device) dateAnew(wall int64, m *stamp) (int64, *stamp) {
	if at := d.since(wall, m); m != nil && !at.IsZero() {
		return d.at(at)
	}
	wall, _ = d.at(d.clock.Now())
	return wall, &stamp{}
}

// claimedNow notes that the source is in use.
func (m *sourceMeta) claimedNow(d *device) {
	m.Claimed, m.ClaimedBy = d.at(d.clock.Now())
	m.ClaimedRight = m.ClaimedBy != nil && m.ClaimedBy.Right
}

// confirm notes when the server confirmed the state. t is a time of this life, or the
// one that m already has.
func (m *sourceMeta) confirm(d *device, t time.Time) {
	if wall := t.UnixNano(); wall == m.Confirmed {
		return
	}
	m.Confirmed, m.ConfirmedBy = d.at(t)
}
