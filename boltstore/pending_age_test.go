package boltstore

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"testing"
	"testing/synctest"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestForgottenHandler: a handler that is not registered for HandlerAge is removed. If
// it returns it is told a Reset, since it may not have been told of a delete.
func TestForgottenHandler(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t),
		Options{Window: time.Nanosecond, FlushInterval: 100 * time.Hour, Clock: clk, HandlerAge: 10 * time.Hour})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	gone, _ := claimHandler(t, s, "gone")
	stays, _ := claimHandler(t, s, "stays")
	handled(t, gone)
	handled(t, stays)
	if err := gone.Release(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int{2, 2, 1} {
		clk.Step(4 * time.Hour)
		p.add(t, s, configMap("a", "one", i+1, nil))
		p.stepped(t, clk)
		if hs, err := s.Handlers(); err != nil || len(hs) != want {
			t.Fatalf("after %d h: %+v %v", 4*(i+1), hs, err)
		}
	}
	for name, reset := range map[string]bool{"gone": true, "stays": false} {
		if name == "stays" {
			must(t, stays.Release())
		}
		if h, _ := claimHandler(t, s, name); resetOwed(h) != reset {
			t.Errorf("%s returns, and a Reset is owed: %t", name, !reset)
		}
	}
}

// TestShortHandlerAge: a handler is not removed before HandlerAge is over, however
// short it is, although its last use is noted only now and then.
func TestShortHandlerAge(t *testing.T) {
	for _, age := range []time.Duration{time.Minute, 10 * time.Minute, 3 * time.Hour, math.MaxInt64} {
		clk := testingclock.NewFakeClock(time.Unix(1e9, 0).Truncate(time.Hour).Add(-time.Second))
		db := openTest(t, testPath(t),
			Options{Window: time.Nanosecond, FlushInterval: 100 * time.Hour, Clock: clk, HandlerAge: age})
		s := claimTest(t, db, Claim{})
		p := &testProducer{}
		s.Feed.Attach(p)
		h, _ := claimHandler(t, s, "gone")
		clk.Step(2*time.Hour - 2*time.Second) // a program that has just been started gets some time
		p.add(t, s, configMap("a", "one", 1, nil))
		p.stepped(t, clk)
		if err := h.Release(); err != nil {
			t.Fatal(err)
		}
		for i, st := range []struct {
			at   time.Duration
			want int
		}{{age * 15 / 16, 1}, {age + max(age/16, time.Minute), 0}} {
			if age == math.MaxInt64 {
				st.at, st.want = 200*365*24*time.Hour, 1
			}
			clk.SetTime(clk.Now().Add(st.at))
			p.add(t, s, configMap("a", "one", i+2, nil))
			p.stepped(t, clk)
			if hs, err := s.Handlers(); err != nil || len(hs) != st.want {
				t.Errorf("HandlerAge %s, after %s: %+v, %v", age, st.at, hs, err)
			}
			if age == math.MaxInt64 {
				break
			}
		}
	}
}

// TestHandlerAgeOfAKilledProgram: an idle handler of a program that is killed is not
// removed before HandlerAge is over. A little later it is.
func TestHandlerAgeOfAKilledProgram(t *testing.T) {
	for _, age := range []time.Duration{time.Hour, 2 * time.Hour, 10 * time.Hour, 100 * time.Hour} {
		for _, lived := range []time.Duration{time.Minute, 59 * time.Minute, 100 * time.Minute} {
			t.Run(fmt.Sprint(age, " ", lived), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { handlerOfAKilledProgram(t, age, lived) })
			})
		}
	}
}

func handlerOfAKilledProgram(t *testing.T, age, lived time.Duration) {
	o := Options{HandlerAge: age, TrustClock: true}
	db := openTest(t, testPath(t), o)
	s := claimTest(t, db, Claim{})
	s.Feed.Attach(&testProducer{})
	claimHandler(t, s, "idle")
	time.Sleep(lived) // on the bubble's clock, which takes no time: the program goes on until it is killed
	snap, err := db.Snapshot()
	must(t, err)
	b, err := io.ReadAll(snap)
	killed := testPath(t)
	must(t, errors.Join(err, snap.Close(), os.WriteFile(killed, b, 0o600)))
	closeTest(t, db)

	at := time.Now()
	db = openTest(t, killed, o)
	defer closeTest(t, db)
	s = claimTest(t, db, Claim{})
	for _, st := range []struct {
		after time.Duration
		want  int
	}{{age - time.Second, 1}, {age + age/16, 0}} {
		// on the bubble's clock, which takes no time: the handler's age is what is tested
		time.Sleep(time.Until(at.Add(st.after))) // on the bubble's clock, see above
		must(t, s.writeMarks())
		if hs, err := s.Handlers(); err != nil || len(hs) != st.want {
			t.Errorf("%s after it was killed: %+v, %v", st.after, hs, err)
		}
	}
}

// TestHandlerAgeAfterASleep: HandlerAge begins when a handler's registration ends, also if
// nothing was committed since the machine has slept.
func TestHandlerAgeAfterASleep(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t),
		Options{Window: time.Nanosecond, FlushInterval: 1000 * time.Hour, Clock: clk, HandlerAge: 10 * time.Hour})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	h, _ := claimHandler(t, s, "durable")
	clk.SetTime(clk.Now().Add(29 * time.Hour))
	must(t, h.Release())
	for i, want := range []int{1, 1, 0} {
		clk.SetTime(clk.Now().Add(4 * time.Hour))
		p.add(t, s, configMap("a", "one", i+1, nil))
		p.stepped(t, clk)
		if hs, err := s.Handlers(); err != nil || len(hs) != want {
			t.Errorf("%d h after its end: %+v, %v", 4*(i+1), hs, err)
		}
	}
}
