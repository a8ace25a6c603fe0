package informer

import (
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/devicetest"
	"github.com/kubewake/kubewake/reflector"
)

// TestReboots: on a device without a battery for its clock, a confirmation in an earlier
// boot is not taken for young because the clock has restarted. An age is known within a
// boot, and if the clock was known to be right both times.
func TestReboots(t *testing.T) {
	const week = 7 * 24 * time.Hour
	begins := time.Unix(0, 0).Add(time.Hour) // the clock, at each boot
	right := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for _, tc := range []struct {
		name string
		// before the server confirms, and afterwards, when it cannot be reached.
		before, afterwards func(d *devicetest.Device)
		trust              bool
		known              bool
		age                time.Duration
	}{
		{"same boot", nil, func(d *devicetest.Device) { d.Pass(10 * time.Minute) }, false, true, 10 * time.Minute},
		{"same boot, clock set back", nil, func(d *devicetest.Device) {
			d.Pass(10 * time.Minute)
			d.Set(begins.Add(-time.Minute), false)
		}, false, true, 10 * time.Minute},
		{"same boot, clock set forward", nil, func(d *devicetest.Device) {
			d.Pass(10 * time.Minute)
			d.Set(right, true)
		}, false, true, 10 * time.Minute},
		{"same boot, a week", nil, func(d *devicetest.Device) { d.Pass(week) }, false, true, week},
		{"another boot, past the confirmation", nil, func(d *devicetest.Device) {
			d.Reboot(begins)
			d.Pass(20 * time.Minute)
		}, false, false, 0},
		{"another boot, before the confirmation", func(d *devicetest.Device) {
			d.Pass(time.Hour)
		}, func(d *devicetest.Device) { d.Reboot(begins) }, false, false, 0},
		{"right only now", nil, func(d *devicetest.Device) {
			d.Reboot(begins)
			d.Set(right, true)
		}, false, false, 0},
		{"right only then", func(d *devicetest.Device) { d.Set(right, true) }, func(d *devicetest.Device) {
			d.Reboot(right.Add(time.Minute))
		}, false, false, 0},
		{"right both times", func(d *devicetest.Device) { d.Set(right, true) }, func(d *devicetest.Device) {
			d.Reboot(begins)
			d.Set(right.Add(week), true)
		}, false, true, week},
		{"right both times, minutes", func(d *devicetest.Device) { d.Set(right, true) }, func(d *devicetest.Device) {
			d.Reboot(begins)
			d.Set(right.Add(20*time.Minute), true)
		}, false, true, 20 * time.Minute},
		// The test's server is on this machine, so it has the same clock.
		{"a server here had the same time", func(d *devicetest.Device) {
			d.Set(time.Now(), false)
		}, func(d *devicetest.Device) {
			d.Reboot(begins)
			d.Set(time.Now().Add(20*time.Minute), true)
		}, false, false, 0},
		{"trusted", func(d *devicetest.Device) { d.Set(right, false) }, func(d *devicetest.Device) {
			d.Reboot(right.Add(20 * time.Minute))
		}, true, true, 20 * time.Minute},
		{"trusted, and gone back", func(d *devicetest.Device) { d.Set(right, false) }, func(d *devicetest.Device) {
			d.Reboot(begins)
		}, true, false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.create("a")
			d := devicetest.New(begins)
			w.options = boltstore.Options{Clock: d, TrustClock: tc.trust}
			if tc.before != nil {
				tc.before(d)
			}
			w.live(Options{}).run().synced().end()
			if err := w.sim.RefuseConnections(true); err != nil {
				t.Fatal(err)
			}
			tc.afterwards(d)
			for _, most := range []time.Duration{-1, time.Hour, 8 * 24 * time.Hour} {
				l := w.live(Options{MaxStaleness: most})
				l.is(tc.known, tc.age)
				l.run()
				eventually(t, "offline", func() bool { return l.inf.State().Phase == reflector.PhaseOffline })
				l.is(tc.known, tc.age)
				t.Logf("MaxStaleness %s", most)
				if most < 0 || tc.known && tc.age < most {
					l.synced()
				} else {
					l.notSynced()
				}
				l.end()
			}
			if err := w.sim.RefuseConnections(false); err != nil {
				t.Fatal(err)
			}
			l := w.live(Options{}).run().synced()
			l.is(true, 0)
			l.end()
		})
	}
}

// is fails the test if the age differs, or is known although it should not be.
func (l *life) is(known bool, age time.Duration) {
	l.t.Helper()
	got, ok := l.inf.State().Age(l.inf.o.clock.Now())
	if ok != known || ok && (got < age-time.Minute || got > age+time.Minute) {
		l.t.Errorf("it is %s old, known %v, want %s, %v", got, ok, age, known)
	}
}
