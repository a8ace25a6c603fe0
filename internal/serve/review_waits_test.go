package serve

import (
	"net/http"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestReviewThatWaits: a stranger's token for which the server itself waits in vain, as for a
// webhook, leaves the link to everybody else. If the server is silent, it is left alone.
func TestReviewThatWaits(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	link := c.link(t, LinkOptions{Clock: clock})
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link})
	c.hangs = func(token string) {
		if token == "strange" {
			clock.Step(patience)
			panic(http.ErrAbortHandler)
		}
	}
	if _, err := link.authenticate(t.Context(), "strange"); err == nil ||
		err.ErrStatus.Code != http.StatusUnauthorized {
		t.Error(err)
	}
	// The same token need not wait again.
	began := clock.Now()
	if _, err := link.authenticate(t.Context(), "strange"); err == nil ||
		err.ErrStatus.Code != http.StatusUnauthorized || clock.Since(began) > 0 {
		t.Errorf("once more: after %s, %v", clock.Since(began), err)
	}
	if a := s.get("/api/v1/pods"); a.code != 200 {
		t.Errorf("another's request: %d %s", a.code, a.body)
	}
	if user, err := link.authenticate(t.Context(), "token-of-ann"); err != nil || user.Username != "ann" {
		t.Errorf("another's token: %v %v", user, err)
	}
	clock.Step(longPause + time.Second)
	began = clock.Now()
	if _, err := link.authenticate(t.Context(), "strange"); err == nil || clock.Since(began) == 0 {
		t.Errorf("the server is not asked again: %v", err)
	}
	c.waits = func() { clock.Step(patience) }
	c.setDown(true)
	if _, err := link.authenticate(t.Context(), "other"); err == nil || err.ErrStatus.Code != http.StatusUnauthorized {
		t.Error(err)
	}
	if _, err := link.reviews.silent(); err == nil {
		t.Error("a server that answers nothing is not left alone")
	}
}
