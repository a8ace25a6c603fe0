package reflector

import (
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/devicetest"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// wallClock is a system's clock in a bubble: wall time jumps as it is set, but monotonic
// time, which timers follow, does not.
type wallClock struct {
	clock.RealClock
	began time.Time
	ahead atomic.Int64
	slept atomic.Int64
	right atomic.Bool
}

// jump sets the clock.
func (c *wallClock) jump(d time.Duration) { c.ahead.Add(int64(d)) }

// sleep lets the machine sleep.
func (c *wallClock) sleep(d time.Duration) {
	c.slept.Add(int64(d))
	c.jump(d)
}

var _ boltstore.DeviceClock = &wallClock{}

func (c *wallClock) Boot() string          { return "this" }
func (c *wallClock) Slept() time.Duration  { return time.Duration(c.slept.Load()) }
func (c *wallClock) Uptime() time.Duration { return time.Since(c.began) + c.Slept() }
func (c *wallClock) Synchronised() bool    { return c.right.Load() }

func (c *wallClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

func (c *wallClock) Now() time.Time {
	now := time.Now()
	return devicetest.BothClocks(now.Add(time.Duration(c.ahead.Load())), now.Sub(c.began)+time.Second)
}

// jumping is bubble with a wallClock.
func jumping(t *testing.T, test func(*fixture, *wallClock)) {
	t.Helper()
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		clk := &wallClock{began: time.Now()}
		test(fixtureOver(t, sim, 5, clk, Options{}), clk)
	})
}

// TestClockJumps: setting the clock changes no age, and the time that the machine sleeps,
// while monotonic time stands still, counts.
func TestClockJumps(t *testing.T) {
	jumping(t, func(f *fixture, clk *wallClock) {
		age := func(when string, least, most time.Duration, known bool) {
			t.Helper()
			got, ok := f.State().Age(clk.Now())
			if ok != known || ok && (got < least || got > most) {
				t.Errorf("%s: %s old, known %v", when, got, ok)
			}
		}
		fresh := func(when string) {
			t.Helper()
			began := time.Now()
			if err := f.WaitForFresh(t.Context(), time.Minute); err != nil {
				t.Error(err)
			}
			age(when, 0, time.Minute, true)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("%s: fresh after %s", when, took)
			}
			after(time.Second) // a watch goes on
		}
		f.reflect()
		after(10 * time.Second)
		age("at first", 0, 15*time.Second, true)
		f.cost()

		clk.sleep(8 * time.Hour)
		age("after a sleep", 8*time.Hour, 9*time.Hour, true)
		fresh("asked after a sleep")
		f.costs("after a sleep", kubesim.Cost{Questions: 1, Watches: 1, Bytes: 450})

		clk.jump(-5 * time.Hour)
		age("set back", 0, time.Minute, true)
		clk.jump(30 * time.Hour)
		age("set forward", 0, time.Minute, true)
		clk.jump(-25 * time.Hour)
		fresh("asked when set back")

		// Without a server: set back by less than the age.
		if err := f.sim.RefuseConnections(true); err != nil {
			t.Fatal(err)
		}
		after(10 * time.Minute)
		clk.jump(-5 * time.Minute)
		age("set back a little", 10*time.Minute, 11*time.Minute, true)
		clk.jump(-time.Hour)
		age("set back more", 10*time.Minute, 11*time.Minute, true)
		clk.jump(3 * time.Hour)
		age("set forward", 10*time.Minute, 11*time.Minute, true)
		clk.sleep(2 * time.Hour)
		age("after another sleep", 2*time.Hour+10*time.Minute, 2*time.Hour+11*time.Minute, true)
		if err := f.sim.RefuseConnections(false); err != nil {
			t.Fatal(err)
		}
		f.create("missed")
		after(2 * time.Minute)
		age("connected again", 0, 2*time.Minute, true)
		if diff := f.differs(); diff != "" || f.State().Phase != PhaseLive {
			t.Error(diff, f.State())
		}
	})
}

// TestSleepDuringAQuestion: an answer that came before the machine slept, and was read after
// it, is as old as the sleep. Whoever wants a younger one asks again.
func TestSleepDuringAQuestion(t *testing.T) {
	jumping(t, func(f *fixture, clk *wallClock) {
		f.reflect()
		after(10 * time.Second)
		var asked atomic.Int32
		f.breaks.Store(new(func(req *http.Request) error {
			if req.URL.Query().Get("watch") == "" && asked.Add(1) == 1 {
				clk.sleep(8 * time.Hour)
			}
			return nil
		}))
		if err := f.WaitForFresh(t.Context(), 0); err != nil {
			t.Error(err)
		}
		if n := asked.Load(); n < 2 {
			t.Errorf("asked %d times", n)
		}
		if got, ok := f.State().Age(clk.Now()); !ok || got > time.Minute {
			t.Errorf("%s old, known %v", got, ok)
		}
	})
}

// TestStoppedMachine: the time for which a virtual machine was stopped counts once its clock
// is right again.
func TestStoppedMachine(t *testing.T) {
	jumping(t, func(f *fixture, clk *wallClock) {
		age := func(when string, least, most time.Duration) {
			t.Helper()
			if got, ok := f.State().Age(clk.Now()); !ok || got < least || got > most {
				t.Errorf("%s: %s old, known %v", when, got, ok)
			}
		}
		clk.right.Store(true)
		f.reflect()
		after(10 * time.Second)
		age("at first", 0, 15*time.Second)
		clk.right.Store(false)
		clk.jump(3 * time.Hour)
		age("nobody vouches for the clock", 0, 15*time.Second)
		clk.right.Store(true)
		age("stopped", 3*time.Hour, 4*time.Hour)
		if err := f.WaitForFresh(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		age("asked", 0, time.Minute)
		clk.jump(-3 * time.Hour)
		age("set back", 0, time.Minute)
		clk.right.Store(false)
		after(time.Second)
		clk.jump(3 * time.Hour)
		var asked atomic.Int32
		f.breaks.Store(new(func(req *http.Request) error {
			if req.URL.Query().Get("watch") == "" {
				clk.right.Store(true) // as if the answer vouched for it
				asked.Add(1)
			}
			return nil
		}))
		if err := f.WaitForFresh(t.Context(), 0); err != nil {
			t.Error(err)
		}
		age("asked, and the answer vouches for the clock", 0, time.Minute)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestClockJumpsOverDeadWatch: a dead watch is replaced as soon as otherwise.
func TestClockJumpsOverDeadWatch(t *testing.T) {
	for _, jump := range []time.Duration{0, 8 * time.Hour, -20 * time.Hour} {
		t.Run(jump.String(), func(t *testing.T) {
			jumping(t, func(f *fixture, clk *wallClock) {
				f.reflect()
				after(10 * time.Second)
				f.cost()
				f.sim.Mute()
				clk.jump(jump)
				f.create("missed")
				after(70 * time.Second)
				if n := len(f.store.ListKeys()); n != 5 {
					t.Errorf("%d objects, the watch is not silent", n)
				}
				after(30 * time.Second)
				if diff := f.differs(); diff != "" || f.State().Phase != PhaseLive {
					t.Error(diff, f.State())
				}
				if age, ok := f.State().Age(clk.Now()); !ok || age > time.Minute {
					t.Errorf("%s old, known %v", age, ok)
				}
				f.costs("replaced", kubesim.Cost{Questions: 1, Watches: 2, Others: 1, Bytes: 1000})
			})
		})
	}
}
