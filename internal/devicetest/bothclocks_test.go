package devicetest

import (
	"testing"
	"time"
)

// TestBothClocks: the layout of time.Time is the one that BothClocks writes.
func TestBothClocks(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 8, time.UTC)
	a, b := BothClocks(at, time.Hour), BothClocks(at.Add(8*time.Hour), time.Hour+time.Minute)
	if !a.Round(0).Equal(at) || b.Sub(a) != time.Minute || b.Round(0).Sub(a) != 8*time.Hour {
		t.Fatalf("%s, %s: the layout of time.Time is another", a, b)
	}
}
