package boltstore

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestHandlerAgeAfterASleep: HandlerAge begins when a handler's registration ends, also if
// nothing was committed since the machine has slept.
func TestHandlerAgeAfterASleep(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond, FlushInterval: 1000 * time.Hour, Clock: clk, HandlerAge: 10 * time.Hour})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Attach(p)
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
