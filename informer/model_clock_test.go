package informer

import (
	"time"

	"github.com/kubewake/kubewake/internal/devicetest"
)

// modelClock is a device's clock, beside the true time.
type modelClock struct {
	*devicetest.Device
	boot  int
	began time.Time     // by the real clock
	extra time.Duration // time that has passed beside real time
	// spoke is the true time up to which the server may have confirmed.
	spoke time.Time
}

// off is how long the device has no power before a boot. Its clock does not notice that
// time.
const off = 24 * time.Hour

// modelEpoch is the true time at a program's start.
var modelEpoch = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// clockBegins is the time that a clock without a battery shows at a boot.
var clockBegins = time.Unix(0, 0).Add(time.Hour)

func newModelClock() *modelClock {
	return &modelClock{Device: devicetest.New(clockBegins), began: time.Now()}
}

func (c *modelClock) truth() time.Time { return modelEpoch.Add(time.Since(c.began) + c.extra) }

// rest is what happens to the device between two lives: time passes, the clock is
// set, the device boots.
func (c *modelClock) rest(o op) {
	wall := c.Now()
	if o.n > 1 {
		c.boot++
		c.extra += off
		switch o.n {
		case 2, 3: // it goes on where it was
			c.Reboot(wall)
		default:
			c.Reboot(clockBegins)
		}
	}
	pass := []time.Duration{0, time.Minute, 20 * time.Minute, 3 * time.Hour}[o.key%4]
	c.Pass(pass)
	c.extra += pass
	switch o.n {
	case 1, 5: // somebody sets it, to a wrong time
		c.Set(c.truth().Add(time.Hour), false)
	case 6: // a time service does
		c.Set(c.truth(), true)
	case 7: // it is set correctly, and no server vouches for it
		c.Set(c.truth(), false)
	}
}

// rest ends a life, by a crash or in order, does something to the device, and begins the
// next life.
func (m *model) rest(o op) {
	m.resting = func() { m.clock.rest(o) }
	if o.key&4 > 0 {
		m.crash()
	} else {
		m.endOpen()
		m.check()
		m.start()
	}
	if o.key&8 > 0 {
		m.inf.store.Upstream.ServerTime(m.clock.truth())
	}
}

// age checks the age of its objects that a life states before it has reached the server:
// it is known within a boot, and is never less than the true one.
func (m *model) age() {
	least := m.clock.truth().Sub(m.clock.spoke)
	st := m.inf.State()
	age, known := st.Age(m.clock.Now())
	switch {
	case m.clock.spoke.IsZero():
	case known && age < least-time.Second:
		m.t.Fatalf("it is at least %s old, and said to be %s", least, age)
	case !known && m.clock.boot == 0 && st.Confirmed.Unix() > 0:
		m.t.Fatalf("the device has not booted since, and the age is not known: %+v", st)
	}
}

// spoken notes that a life has ended: the server has confirmed nothing since.
func (m *model) spoken() { m.clock.spoke = m.clock.truth() }
