package serve

import (
	"crypto/tls"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// reviewing is a server that knows ann's token and answers everything else. Other tokens, and
// requests for things that are held, wait until the test is over.
type reviewing struct {
	*httptest.Server
	over  chan struct{}
	end   func()      // closes over
	asked chan string // what waits
}

func newReviewing(t *testing.T) *reviewing {
	t.Helper()
	c := &reviewing{over: make(chan struct{}), asked: make(chan string, 1000)}
	c.end = sync.OnceFunc(func() { close(c.over) })
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	t.Cleanup(c.end)
	return c
}

// ServeHTTP implements http.Handler.
func (c *reviewing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	body, err := io.ReadAll(r.Body) // only then net/http sees the caller leave
	if err != nil {
		return
	}
	token := strings.HasSuffix(r.URL.Path, "/tokenreviews")
	if token {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, &review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		review.Status.Authenticated = review.Spec.Token == "token-of-ann"
		review.Status.User.Username = "ann"
	}
	if token && !review.Status.Authenticated || strings.Contains(r.URL.Path, "held") {
		c.asked <- r.URL.Path + review.Spec.Token
		select {
		case <-r.Context().Done():
		case <-c.over:
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") {
		const yes = `{"kind":"SubjectAccessReview","apiVersion":"authorization.k8s.io/v1","status":{"allowed":true}}`
		_, _ = io.WriteString(w, yes) // the client left
		return
	}
	review.Kind, review.APIVersion = "TokenReview", "authentication.k8s.io/v1"
	_ = json.NewEncoder(w).Encode(review) // the client left
}

// trickle begins a request over TLS whose body does not come.
func (r *remote) trickle(path, token string) net.Conn {
	r.t.Helper()
	addr := strings.TrimPrefix(r.addr, "https://")
	conn, err := tls.Dial("tcp", addr, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() }) // the server may have closed it
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		r.t.Fatal(err)
	}
	const head = "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nExpect: " +
		"100-continue\r\nContent-Length: 1000\r\n\r\n"
	if _, err := fmt.Fprintf(conn, head, path, token); err != nil {
		r.t.Fatal(err)
	}
	// the body is read now
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100 Continue\r\n\r\n"))); err != nil {
		r.t.Fatal(err)
	}
	return conn
}

// TestBodiesThatTrickle: requests whose bodies do not come take no places from anybody.
func TestBodiesThatTrickle(t *testing.T) {
	const most = 4
	ours := newAuthority(t)
	link := linkTo(t, newReviewing(t).Server, LinkOptions{Offline: time.Hour})
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link,
		Limits: Limits{Requests: most, Send: time.Hour}})
	r := s.remote(ours)
	for range 3 * most {
		r.trickle(maps, "token-of-ann")
	}
	anybody, bob := r.client(nil, pkix.Name{}), r.client(ours, pkix.Name{CommonName: "bob"})
	for who, a := range map[string]said{
		"this user": send(t, s.socket, "POST", local+maps, strings.NewReader("a body")),
		"bob":       send(t, bob, "POST", r.addr+maps, strings.NewReader("a body")),
		"ann": send(t, anybody, "POST", r.addr+maps, strings.NewReader("a body"), "Authorization",
			"Bearer token-of-ann"),
	} {
		if a.code != 200 {
			t.Errorf("%s: %d %s", who, a.code, a.body)
		}
	}
}

// TestOneUserWaits: one user's requests for which the server takes its time leave places to
// others, at this address and at all other ones.
func TestOneUserWaits(t *testing.T) {
	const most = 8
	ours, server := newAuthority(t), newReviewing(t)
	link := linkTo(t, server.Server, LinkOptions{Offline: time.Hour})
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link, Limits: Limits{Requests: most}})
	r := s.remote(ours)
	anybody, bob := r.client(nil, pkix.Name{}), r.client(ours, pkix.Name{CommonName: "bob"})
	if a := get(t, anybody, r.addr+maps, "Authorization", "Bearer token-of-ann"); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	ended := make(chan said)
	for range most {
		go func() {
			ended <- get(t, anybody, r.addr+"/api/v1/namespaces/a/pods/held", "Authorization", "Bearer token-of-ann")
		}()
	}
	for range most - most/4 { // half of those that may wait at the server wait
		if a := <-ended; a.code != 429 {
			t.Errorf("ann: %d %s", a.code, a.body)
		}
	}
	for who, a := range map[string]said{"this user": s.get("/api/v1/pods"), "bob": get(t, bob, r.addr+"/api/v1/pods")} {
		if a.code != 200 {
			t.Errorf("%s: %d %s", who, a.code, a.body)
		}
	}
	server.end()
	for range most / 4 {
		if a := <-ended; a.code != 200 {
			t.Errorf("ann: %d %s", a.code, a.body)
		}
	}
}

// TestStrangers: many connections with tokens that the server takes its time to refuse keep
// nobody out whom it has accepted, and the server is asked about few of them.
func TestStrangers(t *testing.T) {
	const most, strangers = 8, 200
	server := newReviewing(t)
	link := linkTo(t, server.Server, LinkOptions{Offline: time.Hour})
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link, Limits: Limits{Requests: most}})
	r := s.remote(newAuthority(t))
	ann := r.client(nil, pkix.Name{})
	look := func() {
		t.Helper()
		if a := get(t, ann, r.addr+maps, "Authorization", "Bearer token-of-ann"); a.code != 200 {
			t.Errorf("ann: %d %s", a.code, a.body)
		}
	}
	look()
	began := time.Now()
	var under sync.WaitGroup
	for i := range strangers {
		under.Go(func() {
			get(t, r.client(nil, pkix.Name{}), r.addr+maps, "Authorization", fmt.Sprint("Bearer guess-", i))
		})
	}
	<-server.asked
	for range 20 {
		look()
	}
	if clock, ok := s.link.reviews.clock.(interface{ Step(time.Duration) }); ok {
		clock.Step(yesFor) // ann's token must be asked about again
	}
	look()
	server.end()
	under.Wait()
	took := time.Since(began)
	if asked := 1 + len(server.asked); asked > most/4*(int(took/time.Second)+2) {
		t.Errorf("the server was asked about %d tokens of strangers within %s", asked, took)
	}
}
