package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestWatchesEndInOrder: when the server closes, watches end in order, as those of an API
// server that is restarted. In HTTP/2 client-go would make an event of a break.
func TestWatchesEndInOrder(t *testing.T) {
	t.Run("own", func(t *testing.T) { watchesEndInOrder(t, fileOf(t, apifile.Options{})) })
	t.Run("shared", func(t *testing.T) {
		watchesEndInOrder(t, sharedOf(t, filled(t)))
	})
}

func watchesEndInOrder(t *testing.T, file File) {
	t.Helper()
	s := start(t, Options{File: file})
	s.inOrder = time.Minute // also on a busy machine
	at, ca, err := s.Loopback("127.0.0.1:0", "token")
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	overTLS := func(http2 bool) *http.Client {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: http2}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr, Timeout: time.Minute}
	}
	ended := make(chan error)
	watches := 0
	for base, clients := range map[string][]*http.Client{local: {s.socket},
		"https://" + at.String(): {overTLS(true), overTLS(false)}} {
		for _, c := range clients {
			for range 3 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
					base+maps+"?watch=true&resourceVersion=0", nil)
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer token")
				resp, err := c.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = resp.Body.Close() }) // it has ended
				in := bufio.NewReader(resp.Body)
				if _, err := in.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				watches++
				go func() {
					_, err := io.Copy(io.Discard, in)
					ended <- err
				}()
			}
		}
	}
	began := time.Now()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("closing took %s", took)
	}
	for range watches {
		if err := <-ended; err != nil {
			t.Errorf("a watch broke off: %v", err)
		}
	}
}

// TestCloseDuringReview: a caller whose rights are being asked for when the server closes is
// not refused. A read gets its answer, and a watch breaks off, so that its client asks again.
func TestCloseDuringReview(t *testing.T) {
	c := newCluster(t)
	asked, goOn := make(chan struct{}), make(chan struct{})
	c.may = func(authorizationv1.SubjectAccessReviewSpec) bool {
		asked <- struct{}{}
		<-goOn
		return true
	}
	ours := newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	s.inOrder = time.Minute // the list's answer comes late
	r := s.remote(ours)
	list, watch := make(chan said, 1), make(chan said, 1)
	for query, answer := range map[string]chan said{"": list, "?watch=true": watch} {
		client := r.client(ours, pkix.Name{CommonName: "bob"})
		go func() { answer <- send(t, client, http.MethodGet, r.addr+maps+query, nil) }()
		<-asked
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for begun := false; !begun; runtime.Gosched() {
		s.mu.Lock()
		begun = s.servers == nil
		s.mu.Unlock()
	}
	if a := <-watch; a.code != 0 {
		t.Errorf("the watch: %d %s", a.code, a.body)
	}
	close(goOn)
	if a := <-list; !a.has(200, `"items"`) {
		t.Errorf("the list: %d %s", a.code, a.body)
	}
	if err := <-closed; err != nil {
		t.Error(err)
	}
}

// TestCloseBeforeAnswer: a watch that the server has not answered when this one closes
// breaks off. An answer without events would say that there was nothing to tell.
func TestCloseBeforeAnswer(t *testing.T) {
	asked := make(chan struct{}, 2)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	defer server.Close()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{})})
	watch := make(chan said, 1)
	go func() { watch <- s.get("/api/v1/pods?watch=true") }()
	<-asked
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if a := <-watch; a.code != 0 {
		t.Errorf("%d %q", a.code, a.body)
	}
}
