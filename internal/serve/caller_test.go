package serve

import (
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

const maps = "/api/v1/namespaces/a/configmaps"

// TestThisUser: the socket lets this user in, and so does the token of the kubeconfig at
// the loopback address. No other user gets in there, and there is no other address
// without a given certificate.
func TestThisUser(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{})})
	if a := s.get(maps); !a.has(200, `"x"`) {
		t.Errorf("the socket: %d %s", a.code, a.body)
	}
	for _, addr := range []string{"0.0.0.0:0", ":0", "[::]:0", "192.0.2.1:0"} {
		if _, _, err := s.Loopback(addr, "t"); err == nil || !strings.Contains(err.Error(), "needs TLS") {
			t.Errorf("%s: %v", addr, err)
		}
	}
	path := filepath.Join(s.dir, "kubeconfig")
	token, _ := Kept(path)
	at, ca, err := s.Loopback("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(path, at, ca, token); err != nil {
		t.Fatal(err)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	for token, want := range map[string]int{cfg.BearerToken: 200, "": 401, "another": 401, cfg.BearerToken + "x": 401} {
		c := rest.CopyConfig(cfg)
		c.BearerToken = token
		client, err := rest.HTTPClientFor(c)
		if err != nil {
			t.Fatal(err)
		}
		if a := get(t, client, c.Host+maps); a.code != want || want != 200 && strings.Contains(a.body, `"x"`) {
			t.Errorf("token %.5q...: %d %s", token, a.code, a.body)
		}
	}
	if a := get(t, &http.Client{}, "http://"+at.String()+maps, "Authorization",
		"Bearer "+cfg.BearerToken); a.code == 200 {
		t.Errorf("without TLS: %s", a.body)
	}
}

// TestSomebodyElse: over TLS the users that the cluster knows get in, each with their own
// rights.
func TestSomebodyElse(t *testing.T) {
	c := newCluster(t)
	c.may = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		a := s.ResourceAttributes
		return s.User == "ann" && a.Namespace == "a" && a.Resource == "configmaps" ||
			s.User == "bob" && slices.Equal(s.Groups, []string{"ops", "system:authenticated"}) && a.Verb == "list" &&
				a.Name == "y"
	}
	ours, foreign := newAuthority(t), newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour})})
	r := s.remote(ours)
	anybody := r.client(nil, pkix.Name{})
	bob := r.client(ours, pkix.Name{CommonName: "bob", Organization: []string{"ops"}})
	ann := []string{"Authorization", "Bearer token-of-ann"}
	for _, tc := range []struct {
		name   string
		client *http.Client
		path   string
		header []string
		code   int
		text   string
	}{
		{"nobody", anybody, maps, nil, 401, "neither a client certificate nor a token"},
		{"another token", anybody, maps, []string{"Authorization", "Bearer guess"}, 401, "does not accept the token"},
		{"basic", anybody, maps, []string{"Authorization", "Basic token-of-ann"}, 401, "neither"},
		{"a token", anybody, maps, ann, 200, `"x"`},
		{"a token, another namespace", anybody, "/api/v1/namespaces/b/configmaps", ann, 403,
			`cannot list resource \"configmaps\" in API group \"\" in the namespace \"b\"`},
		{"a token, all namespaces", anybody, "/api/v1/configmaps", ann, 403, "at the cluster scope"},
		{"a token, one of another namespace", anybody, "/api/v1/namespaces/b/configmaps/y", ann, 403, "cannot get"},
		{"a token, a watch of another namespace", anybody, "/api/v1/namespaces/b/configmaps?watch=1", ann, 403,
			"cannot watch"},
		{"a token, a watch by a parameter without a value", anybody, "/api/v1/namespaces/b/configmaps?watch", ann,
			403, "cannot watch"},
		{"a token, no watch", anybody, "/api/v1/namespaces/b/configmaps?watch=False", ann, 403, "cannot list"},
		{"a token, no namespace in the path", anybody, "/api/v1/namespaces//configmaps", ann, 403,
			"at the cluster scope"},
		{"a certificate, one name", bob, "/api/v1/configmaps?fieldSelector=metadata.name%3Dy", nil, 200, `"y"`},
		{"a certificate, all names", bob, "/api/v1/configmaps", nil, 403, `User \"bob\" cannot list`},
		{"a certificate and a token", bob, maps, ann, 403, `User \"bob\" cannot list`},
		{"a certificate without a name", r.client(ours, pkix.Name{Organization: []string{"ops"}}), maps, nil, 401,
			"no common name"},
		{"a foreign certificate", r.client(foreign, pkix.Name{CommonName: "bob", Organization: []string{"ops"}}),
			"/api/v1/configmaps?fieldSelector=metadata.name%3Dy", nil, 0, ""},
	} {
		a := get(t, tc.client, r.addr+tc.path, tc.header...)
		if !a.has(tc.code, tc.text) {
			t.Errorf("%s: %d %s", tc.name, a.code, a.body)
		}
		if tc.code != 200 && strings.Contains(a.body, `"uid":`) {
			t.Errorf("%s sees %s", tc.name, a.body)
		}
	}
	if passed, _ := c.counts(); passed != 0 {
		t.Errorf("%d reads were passed on", passed)
	}
}

// TestNeedsTheServer: without a link no other user gets in.
func TestNeedsTheServer(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{})})
	if _, err := s.TLS("127.0.0.1:0", TLSOptions{Tokens: true}); err == nil ||
		!strings.Contains(err.Error(), "no link") {
		t.Error(err)
	}
	l := start(t, Options{File: fileOf(t, apifile.Options{}), Link: newCluster(t).link(t, LinkOptions{})})
	if _, err := l.TLS("127.0.0.1:0", TLSOptions{}); err == nil ||
		!strings.Contains(err.Error(), "nobody could get in") {
		t.Error(err)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		if a := send(t, s.socket, method, local+maps+"/x", nil); a.code != 405 {
			t.Errorf("%s: %d %s", method, a.code, a.body)
		}
	}
	if a := s.get(maps, "Impersonate-User", "ann"); !a.has(403, "no link") {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestOffline: while the server cannot be asked, requests that it allowed recently are
// allowed, and no others.
func TestOffline(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	allowed := true
	c.may = func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return allowed && s.ResourceAttributes.Namespace == "a"
	}
	ours := newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}),
		Link: c.link(t, LinkOptions{Offline: time.Hour, Clock: clock})})
	r := s.remote(ours)
	anybody := r.client(nil, pkix.Name{})
	ann := []string{"Authorization", "Bearer token-of-ann"}
	ask := func(when, path string, code int, text string) {
		t.Helper()
		if a := get(t, anybody, r.addr+path, ann...); !a.has(code, text) {
			t.Errorf("%s: %d %s", when, a.code, a.body)
		}
	}
	reviews := func() int { _, n := c.counts(); return n }
	ask("online", maps, 200, `"x"`)
	n := reviews()
	ask("at once again", maps, 200, `"x"`)
	if got := reviews(); got != n {
		t.Errorf("%d reviews of what was reviewed", got-n)
	}
	c.setDown(true)
	clock.Step(59 * time.Minute)
	ask("offline for 59 minutes", maps, 200, `"x"`)
	ask("another read", maps+"/x", 403, "while the server cannot be asked")
	if a := get(t, anybody, r.addr+maps, "Authorization", "Bearer guess"); !a.has(401,
		"cannot be asked about the token") || strings.Contains(a.body, "https") ||
		strings.Contains(a.body, "127.0.0.1") {
		t.Errorf("another token: %d %s", a.code, a.body) // a stranger does not learn where the server is
	}
	clock.Step(2 * time.Minute)
	ask("offline for 61 minutes", maps, 401, "has not accepted it within 1h0m0s")
	bob := r.client(ours, pkix.Name{CommonName: "bob"})
	if a := get(t, bob, r.addr+maps); !a.has(403, "has not allowed this within 1h0m0s") {
		t.Errorf("a certificate: %d %s", a.code, a.body)
	}

	c.setDown(false)
	clock.Step(pause)
	ask("online again", maps, 200, `"x"`)
	allowed = false
	clock.Step(yesFor)
	ask("forbidden since", maps, 403, "cannot list")
	c.setDown(true)
	clock.Step(noFor)
	ask("forbidden, then offline", maps, 403, "while the server cannot be asked")
}

// TestGuesses: a client that guesses tokens does not push the server's answers about
// others out of memory.
func TestGuesses(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour})})
	r := s.remote(newAuthority(t))
	anybody := r.client(nil, pkix.Name{})
	if a := get(t, anybody, r.addr+maps, "Authorization", "Bearer token-of-ann"); a.code != 200 {
		t.Errorf("%d %s", a.code, a.body)
	}
	for i := range reviewed + 1 {
		// At the address they would be too many to be asked about: see TestStrangers.
		if _, err := s.link.authenticate(t.Context(), fmt.Sprint("guess", i)); err == nil || err.ErrStatus.Code != 401 {
			t.Fatal(err)
		}
	}
	c.setDown(true)
	if a := get(t, anybody, r.addr+maps, "Authorization", "Bearer token-of-ann"); a.code != 200 {
		t.Errorf("offline: %d %s", a.code, a.body)
	}
}

// TestSecrets: the file's Secrets are served only if asked for. Otherwise the server is
// asked, by its own rules.
func TestSecrets(t *testing.T) {
	const path = "/api/v1/namespaces/a/secrets/s"
	if a := start(t, Options{File: fileOf(t, apifile.Options{})}).get(path); !a.has(403, "not served") ||
		strings.Contains(a.body, "aHVudGVyMg") {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := start(t, Options{File: fileOf(t, apifile.Options{Secrets: true})}).get(path); !a.has(200, "aHVudGVyMg") {
		t.Errorf("%d %s", a.code, a.body)
	}
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	if a := s.get(path); !a.has(200, `"kind":"Answer"`) || a.header.Get(apifile.HeaderAge) != "" {
		t.Errorf("with a link: %d %s", a.code, a.body)
	}
	c.setDown(true)
	if a := s.get(path); a.code != 503 || strings.Contains(a.body, "aHVudGVyMg") {
		t.Errorf("offline: %d %s", a.code, a.body)
	}
}

// TestCertificatesChange: a new certificate, and new CAs of clients, are used from the
// next connection. Unreadable ones are not used.
func TestCertificatesChange(t *testing.T) {
	c := newCluster(t)
	ours, others := newAuthority(t), newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	r := s.remote(ours)
	serial := func(client *http.Client) (int64, int) {
		client.CloseIdleConnections()
		resp, err := client.Get(r.addr + maps)
		if err != nil {
			t.Log(err)
			return 0, 0
		}
		defer resp.Body.Close()
		return resp.TLS.PeerCertificates[0].SerialNumber.Int64(), resp.StatusCode
	}
	bob, eve := r.client(ours, pkix.Name{CommonName: "bob"}), r.client(others, pkix.Name{CommonName: "eve"})
	if n, code := serial(bob); n != 2 || code != 200 {
		t.Errorf("certificate %d, code %d", n, code)
	}
	if _, code := serial(eve); code != 0 {
		t.Errorf("code %d", code)
	}
	cert, key := r.ca.issue(t, 77, pkix.Name{CommonName: "a longer name, of another size"})
	write(t, r.tls.Cert, cert)
	write(t, r.tls.Key, key)
	write(t, r.tls.ClientCA, append(others.pem(), others.pem()...))
	if n, code := serial(eve); n != 77 || code != 200 {
		t.Errorf("certificate %d, code %d", n, code)
	}
	if _, code := serial(bob); code != 0 {
		t.Errorf("code %d", code)
	}
}

// TestKubeconfig: only this user can read it, another life goes on with its token, and a
// token that others may have read is not used. A file written by another program stays.
func TestKubeconfig(t *testing.T) {
	s := start(t, Options{File: fileOf(t, apifile.Options{})})
	path := write(t, filepath.Join(s.dir, "kc"), nil)
	chmod(t, path, 0o644)
	token, addr := Kept(path)
	if addr != "" || len(token) != 43 {
		t.Errorf("%q %q", token, addr)
	}
	at, ca, err := s.Loopback("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(path, at, ca, token); err != nil {
		t.Fatal(err)
	}
	if mode := modeOf(t, path); mode != 0o600 {
		t.Errorf("mode %o", mode)
	}
	if err := WriteKubeconfig(path, at, ca, token); err != nil {
		t.Errorf("the next life: %v", err)
	}
	foreign := write(t, filepath.Join(s.dir, "own"), []byte("anything"))
	if err := WriteKubeconfig(foreign, at, ca, token); err == nil {
		t.Error("another file is replaced")
	}
	if again, addr := Kept(path); again != token || addr != at.String() {
		t.Errorf("%q %q", again, addr)
	}
	chmod(t, path, 0o640)
	if other, _ := Kept(path); other == token {
		t.Error("a token that others can read is kept")
	}
}

// TestNextLife: a running client continues when the next life serves with the same token.
// It knows the earlier life's certificate.
func TestNextLife(t *testing.T) {
	file, token := fileOf(t, apifile.Options{}), NewToken()
	s := start(t, Options{File: file})
	at, ca, err := s.Loopback("127.0.0.1:0", token)
	if err != nil {
		t.Fatal(err)
	}
	client, err := rest.HTTPClientFor(&rest.Config{BearerToken: token,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca}})
	if err != nil {
		t.Fatal(err)
	}
	if a := get(t, client, "https://"+at.String()+maps); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	next := start(t, Options{File: file})
	if at, _, err = next.Loopback("127.0.0.1:0", token); err != nil {
		t.Fatal(err)
	}
	if a := get(t, client, "https://"+at.String()+maps); a.code != 200 {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestNamesThatChangeOnTheWay: a header drops spaces at its ends, so the server would take
// " " for this process itself, and "system:masters " for another group.
func TestNamesThatChangeOnTheWay(t *testing.T) {
	c := newCluster(t)
	c.may = func(authorizationv1.SubjectAccessReviewSpec) bool { return true }
	ours := newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	r := s.remote(ours)
	for _, name := range []pkix.Name{
		{CommonName: " "}, {CommonName: "bob "}, {CommonName: "\tbob"}, {CommonName: "bo\nb"},
		{CommonName: "bob", Organization: []string{"ops", "system:masters "}},
		{CommonName: "bob", Organization: []string{"a\r\nImpersonate-Group: b"}},
	} {
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			if a := send(t, r.client(ours, name), method, r.addr+maps, nil); !a.has(401, "pass on as it is") {
				t.Errorf("%s as %+v: %d %s", method, name, a.code, a.body)
			}
		}
	}
	if passed, _ := c.counts(); passed != 0 {
		t.Errorf("%d requests were passed on, the last one as %q", passed, c.last().as)
	}
	odd := pkix.Name{CommonName: "b ö:b", Organization: []string{"系", "o p,s"}}
	if a := send(t, r.client(ours, odd), http.MethodPost, r.addr+maps, nil); a.code != 200 ||
		c.last().as != "own as b ö:b 系,o p,s" {
		t.Errorf("%d %s, as %q", a.code, a.body, c.last().as)
	}
}
