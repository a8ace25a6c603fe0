package serve

import (
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// refusing is a link to a server that answers everything with a failure.
func refusing(t *testing.T, failure *apierrors.StatusError) *Link {
	t.Helper()
	c := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		kubeapi.WriteStatus(w, failure)
	}))
	t.Cleanup(c.Close)
	link, err := NewLink(&rest.Config{Host: c.URL, BearerToken: "expired", QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: c.Certificate().Raw})}}, LinkOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// TestRefusedReview: a stranger does not learn as whom this process asks about tokens.
func TestRefusedReview(t *testing.T) {
	link := refusing(t, apierrors.NewForbidden(schema.GroupResource{Resource: "tokenreviews"}, "",
		errors.New("User \"edge\" cannot create it")))
	_, err := link.authenticate(t.Context(), "guess")
	if err == nil || err.ErrStatus.Code != 500 ||
		!strings.HasSuffix(err.Error(), "the server does not review the token: Forbidden") {
		t.Error(err)
	}
}

// TestOwnCredentialsRefused: a server that refuses this process's credentials is not one that
// cannot be asked. What it has allowed is used for a minute, and then no more.
func TestOwnCredentialsRefused(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	s := start(t, Options{File: fileOf(t, apifile.Options{}),
		Link: c.link(t, LinkOptions{Clock: clock, Offline: time.Hour})})
	ours := newAuthority(t)
	r := s.remote(ours)
	bob, anybody := r.client(ours, pkix.Name{CommonName: "bob"}), r.client(nil, pkix.Name{})
	look := func(bobs, anns int) {
		t.Helper()
		if a := get(t, bob, r.addr+maps); a.code != bobs {
			t.Errorf("bob: %d %s", a.code, a.body)
		}
		if a := get(t, anybody, r.addr+maps, "Authorization", "Bearer token-of-ann"); a.code != anns {
			t.Errorf("ann: %d %s", a.code, a.body)
		}
	}
	look(200, 200)
	c.setExpired(true)
	look(200, 200)
	clock.Step(yesFor)
	look(403, 500)
	if a := s.get(maps); a.code != 200 {
		t.Errorf("this user: %d %s", a.code, a.body)
	}
	c.setExpired(false)
	look(200, 200)
}

// TestRefusedDiscovery: if the server no longer accepts this process's credentials, this
// user still sees everything in the file.
func TestRefusedDiscovery(t *testing.T) {
	link := refusing(t, apierrors.NewUnauthorized("the token has expired"))
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link})
	for path, want := range map[string]string{"/api": "APIVersions", "/apis": "APIGroupList", "/api/v1": "configmaps",
		"/version": "kubewake"} {
		if a := s.get(path); !a.has(200, want) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	if a := s.get(maps); !a.has(200, `"items"`) {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := s.get("/api/v1/pods"); a.code != 401 || !strings.Contains(a.body, "expired") {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestRedirectedReview: a review, which has a caller's token and this process's credentials,
// goes to no other address.
func TestRedirectedReview(t *testing.T) {
	got := make(chan string, 1)
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case got <- r.Method + " " + r.Header.Get("Authorization"):
		default:
		}
	}))
	defer other.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer server.Close()
	link := linkTo(t, server, LinkOptions{})
	if _, err := link.authenticate(t.Context(), "token-of-ann"); err == nil {
		t.Error("the token is accepted")
	}
	if link.answers(t.Context()); len(got) > 0 {
		t.Error("another address got", <-got)
	}
}
