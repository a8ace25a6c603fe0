package reflector

import (
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// TestOneConnection: however many requests begin at once, also after the link
// under them has broken, they share a connection; and one that is not answered
// holds the others up for a few seconds only.
func TestOneConnection(t *testing.T) {
	const requests = 50
	var conns, waiting atomic.Int64
	stuck := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			<-stuck
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		waiting.Add(1)
		<-r.Context().Done()
	}))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.Config.ConnState = func(_ net.Conn, st http.ConnState) {
		if st == http.StateNew {
			conns.Add(1)
		}
	}
	srv.StartTLS()
	defer srv.Close()
	defer close(stuck)
	cfg := &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := rest.HTTPClientFor(WrapConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	for round := range 3 {
		conns.Store(0)
		waiting.Store(0)
		var wg sync.WaitGroup
		for range requests {
			wg.Go(func() {
				resp, err := client.Get(srv.URL)
				for err != nil && t.Context().Err() == nil { // sent into the connection that was closing
					resp, err = client.Get(srv.URL)
				}
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body) // until the link breaks
				resp.Body.Close()
			})
		}
		for deadline := time.Now().Add(20 * time.Second); waiting.Load() < requests; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d requests have come", waiting.Load())
			}
		}
		if n := conns.Load(); n != 1 {
			t.Errorf("round %d: %d connections", round, n)
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for broken := false; !broken; {
			srv.CloseClientConnections()
			select {
			case <-done:
				broken = true
			case <-time.After(time.Millisecond): // one was sent again meanwhile
			}
		}
	}

	go func() {
		if resp, err := client.Get(srv.URL + "/stuck"); err == nil {
			resp.Body.Close()
		}
	}()
	began := time.Now()
	resp, err := client.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if d := time.Since(began); d > 3*gatePatience {
		t.Errorf("it waited for %v", d)
	}
}
