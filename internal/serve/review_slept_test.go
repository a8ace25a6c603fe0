package serve

import (
	"crypto/x509/pkix"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/devicetest"
)

// TestOfflineAfterSleep: time in which the machine slept counts, although monotonic time
// stood still. An acceptance of before is not used without asking, and not offline.
func TestOfflineAfterSleep(t *testing.T) {
	c := newCluster(t)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	clock := clocktesting.NewFakeClock(devicetest.BothClocks(at, time.Hour))
	s := start(t, Options{File: fileOf(t, apifile.Options{}),
		Link: c.link(t, LinkOptions{Offline: time.Hour, Clock: clock})})
	r := s.remote(newAuthority(t))
	anybody := r.client(nil, pkix.Name{})
	ask := func(when string, code int, text string) {
		t.Helper()
		if a := get(t, anybody, r.addr+maps, "Authorization", "Bearer token-of-ann"); !a.has(code, text) {
			t.Errorf("%s: %d %s", when, a.code, a.body)
		}
	}
	ask("online", 200, `"x"`)
	_, before := c.counts()
	clock.SetTime(devicetest.BothClocks(at.Add(8*time.Hour), time.Hour+time.Second))
	ask("after a night", 200, `"x"`)
	if _, n := c.counts(); n == before {
		t.Error("after a night nobody asked")
	}
	clock.SetTime(devicetest.BothClocks(at, time.Hour+2*time.Second))
	c.setDown(true)
	ask("the clock was set back", 200, `"x"`)
	clock.SetTime(devicetest.BothClocks(at.Add(16*time.Hour), time.Hour+3*time.Second))
	ask("offline after another night", 401, "has not accepted it within 1h0m0s")
}
