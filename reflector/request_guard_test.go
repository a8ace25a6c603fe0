package reflector

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestRetryAfterIsBounded: a request may wait for as long as client-go does, which
// accepts seconds but no date, and not for ever.
func TestRetryAfterIsBounded(t *testing.T) {
	for after, pause := range map[string]time.Duration{
		"7": 7 * time.Second, "": 0, "0": 0, "-3": 0, "soon": 0, "1.5": 0,
		"Wed, 21 Oct 2026 07:28:00 GMT": 0, "100000": mostPause, "9223372036854775807": mostPause,
		"99999999999999999999": 0,
	} {
		p := &pulse{}
		req, err := http.NewRequestWithContext(context.WithValue(t.Context(), pulseKey{}, p), http.MethodGet,
			"http://localhost/api/v1/configmaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := notePulse(func(*http.Request) (*http.Response, error) {
			h := http.Header{}
			h.Set("retry-after", after)
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: h, Body: http.NoBody}, nil
		}, req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := time.Duration(p.pause.Load()); got != pause {
			t.Errorf("Retry-After %q: %s, want %s", after, got, pause)
		}
	}
}

// TestStalledServer: connections are accepted and nothing is answered. No call
// hangs, and everything goes on when the server does.
func TestStalledServer(t *testing.T) {
	bubble(t, 5, kubesim.Options{}, Options{}, func(f *fixture) {
		f.reflect()
		after(time.Second)
		f.cost()
		f.sim.Stall(true)
		f.create("missed")
		after(5 * time.Minute)
		f.costs("stalled", kubesim.Cost{Questions: 8})
		if st := f.State(); st.Phase != PhaseOffline || time.Since(st.Since) < time.Minute {
			t.Errorf("%#v", st)
		}
		f.sim.Stall(false)
		after(2 * time.Minute)
		if diff, st := f.differs(), f.State(); diff != "" || st.Phase != PhaseLive {
			t.Errorf("%s, %#v", diff, st)
		}
		f.costs("when it goes on", kubesim.Cost{Watches: 2, Others: 1, Bytes: 1000})
	})
}

// TestStalledPage: a relist whose page stops half-way is given up and done
// again.
func TestStalledPage(t *testing.T) {
	bubble(t, 8, kubesim.Options{}, Options{pageSize: 3}, func(f *fixture) {
		f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("continue") != "" }, 1,
			func(w http.ResponseWriter, r *http.Request) {
				_, _ = w.Write([]byte(`{"kind":`))
				w.(http.Flusher).Flush()
				<-r.Context().Done()
			})
		f.reflect()
		after(10 * time.Minute)
		if diff, st := f.differs(), f.State(); diff != "" || st.Phase != PhaseLive {
			t.Errorf("%s, %#v", diff, st)
		}
		f.costs("in all", kubesim.Cost{Questions: 4, FullReads: 3, Watches: 3, Others: 4, Forms: 2, Bytes: 3800})
	})
}

// TestSlowPage: bytes that trickle in are signs of life, however long it takes.
func TestSlowPage(t *testing.T) {
	bubble(t, 8, kubesim.Options{}, Options{}, func(f *fixture) {
		f.sim.FailNext(func(r *http.Request) bool {
			return strings.HasSuffix(r.URL.Path, "configmaps")
		}, 1, func(w http.ResponseWriter, r *http.Request) {
			whole := httptest.NewRecorder()
			f.sim.ServeHTTP(whole, r) // counted as a request of its own
			w.Header().Set("Content-Type", whole.Header().Get("Content-Type"))
			for b := range slices.Chunk(whole.Body.Bytes(), 10) {
				_, _ = w.Write(b)
				w.(http.Flusher).Flush()
				time.Sleep(30 * time.Second) // on the bubble's clock, which takes no time: the answer comes in drops
			}
		})
		began := time.Now()
		f.list()
		if took := time.Since(began); took < time.Hour {
			t.Errorf("after %s", took)
		}
		if diff := f.differs(); diff != "" {
			t.Error(diff)
		}
		f.costs("in all", kubesim.Cost{Questions: 1, FullReads: 1, Others: 1, Forms: 2, Bytes: 3600})
	})
}
