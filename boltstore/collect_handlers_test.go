package boltstore

import (
	"testing"
	"time"

	testingclock "k8s.io/utils/clock/testing"
)

// TestHandlerOfACollectedSource: a durable handler starts over if its source was removed
// because no program claimed it: the deletes since then are unknown. If no source with
// handlers was removed, a new handler is new.
func TestHandlerOfACollectedSource(t *testing.T) {
	for name, had := range map[string]bool{"a handler": true, "a handler, which damage removed": true, "none": false} {
		t.Run(name, func(t *testing.T) {
			clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
			db := openTest(t, testPath(t), Options{Clock: clk, Window: time.Nanosecond})
			s := claimTest(t, db, Claim{})
			switch name {
			case "a handler":
				h, _ := claimHandler(t, s, "one")
				must(t, h.Release())
			case "a handler, which damage removed":
				must(t, s.updateMeta(func(_ sourceTx, m *sourceMeta) error { m.NamesLost = true; return nil }))
			}
			s.Release()
			clk.Step(1000 * time.Hour)
			if gone, err := db.collecting().collect(t.Context(), time.Hour); err != nil || len(gone) != 1 {
				t.Fatal(gone, err)
			}
			p := &testPosition{}
			_, err := claimTest(t, db, Claim{}).ClaimHandler("one", p, func(pos Position, _ uint64, known bool) {
				if known != had || pos.Reset != had {
					t.Errorf("known %t, %+v", known, pos)
				}
			})
			must(t, err)
		})
	}
}
