package reflector

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// gateServer answers each request but /stuck's at once and then sends nothing
// until the connection ends. It counts the connections.
func gateServer(t *testing.T) (srv *httptest.Server, conns *atomic.Int64, stuck chan struct{}) {
	conns, stuck = new(atomic.Int64), make(chan struct{})
	srv = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stuck" {
			close(stuck)
		} else {
			w.WriteHeader(http.StatusOK)
			// An error here may come from a connection that the test has closed after the
			// answer was read. If there is no answer, the client says so.
			_ = http.NewResponseController(w).Flush()
		}
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
	t.Cleanup(func() { srv.CloseClientConnections(); srv.Close() })
	return srv, conns, stuck
}

// gateClient is a client as WrapConfig makes it, and its gate.
func gateClient(t *testing.T, srv *httptest.Server) (*http.Client, *gate) {
	cfg := &rest.Config{Host: srv.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := rest.HTTPClientFor(WrapConfig(cfg))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	rt := client.Transport
	for {
		if own, ok := rt.(*transport); ok {
			return client, own.gate
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok {
			t.Fatalf("no gate under %T", rt)
		}
		rt = wrapper.WrappedRoundTripper()
	}
}

// TestOneConnection: however many requests begin at once, even after their link has
// broken, they share a connection.
func TestOneConnection(t *testing.T) {
	const requests = 50
	srv, conns, _ := gateServer(t)
	client, gate := gateClient(t, srv)
	gate.patience = time.Minute // TestGatePatience has the rest
	for round := range 3 {
		before := conns.Load()
		errs := make([]error, requests)
		var answered, ended sync.WaitGroup
		answered.Add(requests)
		for i := range requests {
			ended.Go(func() {
				var resp *http.Response
				resp, errs[i] = client.Get(srv.URL)
				answered.Done()
				if errs[i] == nil {
					_, _ = io.Copy(io.Discard, resp.Body) // until the link breaks, which is its error
					resp.Body.Close()
				}
			})
		}
		answered.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if n := conns.Load() - before; n != 1 {
			t.Errorf("round %d: %d connections", round, n)
		}
		srv.CloseClientConnections()
		ended.Wait()
	}
}

// TestGatePatience: an unanswered request holds the others up for gatePatience only.
func TestGatePatience(t *testing.T) {
	srv, _, stuck := gateServer(t)
	client, gate := gateClient(t, srv)
	if gate.patience != gatePatience {
		t.Fatalf("patience is %v", gate.patience)
	}
	gate.patience = 50 * time.Millisecond
	client.Timeout = time.Minute
	go func() {
		if resp, err := client.Get(srv.URL + "/stuck"); err == nil {
			resp.Body.Close()
		}
	}()
	<-stuck
	resp, err := client.Get(srv.URL) // fails where patience has no end
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
}
