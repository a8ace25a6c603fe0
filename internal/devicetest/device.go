// Package devicetest has a clock of a device without a battery for its clock: wall time
// starts again at each boot.
package devicetest

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// Device is a boltstore.DeviceClock. Its time passes as on the machine that runs the
// test, plus the time that Pass adds.
type Device struct {
	clock.RealClock

	mu     sync.Mutex
	boots  int
	ahead  time.Duration // of the real clock
	booted time.Time     // by the real clock
	passed time.Duration // in this boot, besides real time
	synced bool
}

// New returns a device that has just booted. Its clock shows the given time.
func New(wall time.Time) *Device {
	d := &Device{}
	d.Reboot(wall)
	return d
}

// Reboot begins another boot, in which the clock shows the given time.
func (d *Device) Reboot(wall time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.boots++
	d.booted, d.passed, d.synced = time.Now(), 0, false
	d.ahead = wall.Sub(d.booted)
}

// Pass adds time in which the test's process does nothing.
func (d *Device) Pass(t time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.passed, d.ahead = d.passed+t, d.ahead+t
}

// Set sets the clock. Times from before cannot be compared with later ones in this
// life.
func (d *Device) Set(wall time.Time, synchronised bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead, d.synced = time.Until(wall), synchronised
}

// Now implements clock.Clock.
func (d *Device) Now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Add(d.ahead)
}

// Since implements clock.Clock.
func (d *Device) Since(t time.Time) time.Duration { return d.Now().Sub(t) }

// Boot implements boltstore.DeviceClock.
func (d *Device) Boot() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprint("boot ", d.boots)
}

// Uptime implements boltstore.DeviceClock.
func (d *Device) Uptime() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.booted) + d.passed
}

// Slept implements boltstore.DeviceClock. The device never sleeps.
func (d *Device) Slept() time.Duration { return 0 }

// Synchronised implements boltstore.DeviceClock.
func (d *Device) Synchronised() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced
}
