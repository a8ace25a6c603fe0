package boltstore

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/devicetest"
)

// standing is a virtual machine that was stopped for a while: neither monotonic time nor
// the time since boot has noticed.
type standing struct {
	*devicetest.Device
	began time.Time
	still time.Duration
}

// processBegan is when monotonic time began, nearly: this process compares times of a standing
// machine with others.
var processBegan = time.Now()

func newStanding() *standing {
	return &standing{Device: devicetest.New(time.Now()), began: processBegan}
}

func (s *standing) Uptime() time.Duration { return s.Device.Uptime() - s.still }

func (s *standing) Now() time.Time {
	now := s.Device.Now()
	return devicetest.BothClocks(now, now.Sub(s.began)-s.still)
}

// stop stops it for a while. A time service sets its clock then.
func (s *standing) stop(d time.Duration) {
	s.Pass(d)
	s.still += d
}

// TestStopBeforeAQuestion: a stop that becomes known while a question is under way counts for
// it, unless the clock was set before: then it was before the question.
func TestStopBeforeAQuestion(t *testing.T) {
	const gone = 3 * time.Hour
	for name, tc := range map[string]struct {
		before, meanwhile func(c *standing)
		want              time.Duration
	}{
		"before":    {func(c *standing) { c.stop(gone) }, func(*standing) {}, 0},
		"meanwhile": {func(*standing) {}, func(c *standing) { c.stop(gone) }, gone},
		// half of it was
		"before and meanwhile": {func(c *standing) { c.stop(gone) }, func(c *standing) { c.stop(gone) }, 2 * gone},
		"not at all":           {func(*standing) {}, func(c *standing) { c.Pass(gone) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := newStanding()
			d := newDevice(Options{Clock: c})
			vouch := func() { d.serverTime(c.Now()) }
			vouch()
			d.slept()
			tc.before(c)
			slept := d.sleeping()
			tc.meanwhile(c)
			vouch()
			if got := slept(); (got - tc.want).Abs() > time.Second {
				t.Errorf("%s, not %s", got, tc.want)
			}
		})
	}
}

// TestAgeAfterAStop: a machine that was stopped does not make what its informer knows look
// young, once its clock is known to be right again. What the server confirms afterwards is
// young at once.
func TestAgeAfterAStop(t *testing.T) {
	const gone = 3 * time.Hour
	c := newStanding()
	right := func(known bool) { c.Set(c.Device.Now(), known) }
	right(true)
	db := openTest(t, testPath(t), Options{Clock: c})
	s := claimTest(t, db, Claim{})
	relist(t, s, "9", RelistOptions{}, []runtime.Object{configMap("a", "one", 1, nil)}, 10)
	var at time.Time
	var slept time.Duration
	confirm := func() { at, slept = c.Now(), s.Upstream.Slept() }
	// as fifo.Queue.Age
	s.SetFreshness(nil, nil, func() (time.Duration, bool) { return c.Now().Sub(at) + s.Upstream.Slept() - slept, true })
	is := func(when string, want time.Duration) {
		t.Helper()
		view, err := db.View(configMaps)
		must(t, err)
		states, err := db.States()
		must(t, err)
		for _, st := range append(states, view.State()) {
			if age := st.ConfirmedAge; age == nil || (*age-want).Abs() > 30*time.Second {
				t.Errorf("%s: age %v, want %s", when, age, want)
			}
		}
	}
	confirm()
	c.Pass(gone)
	is("running", gone)
	confirm()
	c.Pass(time.Minute)
	is("confirmed", time.Minute)
	c.stop(gone)
	is("stopped", gone+time.Minute)
	confirm()
	is("confirmed after the stop", 0)
	right(false)
	c.stop(gone)
	confirm()
	is("confirmed before the clock is right", 0)
	right(true)
	is("confirmed before the clock was right", gone) // it may have been set after that
	confirm()
	is("confirmed when it was", 0)
	c.stop(30 * time.Second)
	c.stop(30 * time.Second)
	c.stop(time.Second)
	is("stopped three times", 61*time.Second)
}
