// Package waittest waits for conditions in tests.
package waittest

import (
	"testing"
	"time"
)

// Eventually waits until cond holds, and fails the test after a minute. what names the
// condition.
func Eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
