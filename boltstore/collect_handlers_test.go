package boltstore

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"
)

// TestHandlerOfACollectedSource: a durable handler begins with a Reset if its source was
// removed because no program claimed it: the deletes since then are unknown.
func TestHandlerOfACollectedSource(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	db := openTest(t, testPath(t), Options{Clock: clk, Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	relist(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
	h, _ := claimHandler(t, s, "one")
	handled(t, h)
	must(t, h.Release())
	s.Release()
	clk.Step(1000 * time.Hour)
	if gone, err := db.collecting().collect(t.Context(), time.Hour); err != nil || len(gone) != 1 {
		t.Fatal(gone, err)
	}
	if h, _ = claimHandler(t, claimTest(t, db, Claim{}), "one"); !resetOwed(h) {
		t.Error("it goes on without a Reset")
	}
}
