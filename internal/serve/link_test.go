package serve

import (
	"bufio"
	"crypto/tls"
	"crypto/x509/pkix"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// TestPassThrough: writes, and reads of objects that the file does not have, go to the
// server with the caller's identity. The rest does not.
func TestPassThrough(t *testing.T) {
	c := newCluster(t)
	ours := newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	r := s.remote(ours)
	anybody, bob := r.client(nil, pkix.Name{}),
		r.client(ours, pkix.Name{CommonName: "bob", Organization: []string{"ops", "dev"}})
	bob1 := r.client(ours, pkix.Name{CommonName: "bob", Organization: []string{"dev", "ops"}})
	bob1.Transport.(*http.Transport).ForceAttemptHTTP2 = false
	bob1.Transport.(*http.Transport).TLSClientConfig.NextProtos = []string{"http/1.1"}
	ann := []string{"Authorization", "Bearer token-of-ann"}
	for _, tc := range []struct {
		name   string
		client *http.Client
		base   string
		method string
		path   string
		header []string
		as     string // "" is not passed on
	}{
		{"this user's read", s.socket, local, "GET", maps, nil, ""},
		{"this user's write", s.socket, local, "POST", maps, nil, "own"},
		{"a token of somebody else's at the socket", s.socket, local, "PUT", maps + "/x", ann, "own"},
		{"this user as somebody", s.socket, local, "GET", maps, []string{"Impersonate-User", "eve"}, "own as eve "},
		{"a patch of ann's", anybody, r.addr, "PATCH", maps + "/x", ann, "ann"},
		{"a delete of bob's", bob, r.addr, "DELETE", maps + "/x", nil, "own as bob dev,ops"},
		{"a type that the file lacks", bob, r.addr, "GET", "/api/v1/pods", nil, "own as bob dev,ops"},
		{"a group that the file lacks", s.socket, local, "GET", "/apis/example.com/v1/widgets", nil, "own"},
		{"a subresource", anybody, r.addr, "GET", maps + "/x/scale", ann, "ann"},
		{"OpenAPI", s.socket, local, "GET", "/openapi/v2", nil, "own"},
		{"a self review", bob, r.addr, "POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", nil,
			"own as bob dev,ops"},
		{"a proxy's headers", s.socket, local, "DELETE", maps,
			[]string{"X-Remote-User", "root", "X-Remote-Group", "system:masters"}, "own"},
		{"headers that are dropped on the way", bob1, r.addr, "DELETE", maps,
			[]string{"Connection", "Impersonate-User, Impersonate-Group"}, "own as bob dev,ops"},
		{"the old path of a watch", s.socket, local, "GET", "/api/v1/watch/configmaps", nil, "own"},
	} {
		before, _ := c.counts()
		a := send(t, tc.client, tc.method, tc.base+tc.path, strings.NewReader("body of "+tc.name), tc.header...)
		after, _ := c.counts()
		if tc.as == "" {
			if after != before || a.code != 200 {
				t.Errorf("%s: passed on %d: %d %s", tc.name, after-before, a.code, a.body)
			}
			continue
		}
		got := c.last()
		if after != before+1 || !a.has(200, `"kind":"Answer"`) || got.as != tc.as ||
			got.what != tc.method+" "+tc.path || got.body != "body of "+tc.name {
			t.Errorf("%s: passed on %d: %+v: %d %s", tc.name, after-before, got, a.code, a.body)
		}
		if got.header.Get("X-Remote-User") != "" || a.header.Get(apifile.HeaderAge) != "" {
			t.Errorf("%s: %v, %v", tc.name, got.header, a.header)
		}
	}
	before, _ := c.counts()
	for _, name := range []string{"Impersonate-User", "impersonate-group", "Impersonate-Extra-Scopes",
		"Impersonate-Uid"} {
		for _, method := range []string{"GET", "POST"} {
			if a := send(t, bob, method, r.addr+maps, nil, name, "system:masters"); !a.has(403,
				"cannot impersonate somebody else") {
				t.Errorf("%s %s: %d %s", method, name, a.code, a.body)
			}
		}
	}
	if after, _ := c.counts(); after != before {
		t.Errorf("%d were passed on", after-before)
	}
	// ann may impersonate if the server lets her: it has her own token.
	if a := get(t, anybody, r.addr+maps, append(ann, "Impersonate-User", "eve")...); a.code != 200 ||
		c.last().as != "ann" || c.last().header.Get("Impersonate-User") != "eve" {
		t.Errorf("%d %+v", a.code, c.last())
	}
}

// TestDown: without the server the file answers, and requests that need the server get
// 503.
func TestDown(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Clock: clock})})
	if a := s.get("/version"); !a.has(200, "v1.36.0") {
		t.Errorf("%d %s", a.code, a.body)
	}
	c.setDown(true)
	for _, tc := range []struct{ method, path string }{
		{"POST", maps}, {"DELETE", maps + "/x"}, {"GET", "/api/v1/pods"}, {"GET", "/api/v1/namespaces/a/pods/p/log"},
		{"GET", "/openapi/v2"},
	} {
		a := send(t, s.socket, tc.method, local+tc.path, nil)
		if !a.has(503, `"reason":"ServiceUnavailable"`) || !strings.Contains(a.body, `"retryAfterSeconds":1`) {
			t.Errorf("%s %s: %d %s", tc.method, tc.path, a.code, a.body)
		}
		// client-go itself asks again, ten times, if it is a number.
		if until, err := http.ParseTime(a.header.Get("Retry-After")); err != nil || until.Before(clock.Now()) ||
			until.Sub(clock.Now()) > 3*time.Second {
			t.Errorf("Retry-After %q", a.header.Get("Retry-After"))
		}
	}
	for path, text := range map[string]string{maps: `"uid":"ax"`, "/version": "kubewake", "/api/v1": `"configmaps"`} {
		if a := s.get(path); !a.has(200, text) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
		// A client that offers HTTP/2, as curl --http2, takes an answer in HTTP/1.1.
		if a := s.get(path, "Connection", "Upgrade, HTTP2-Settings", "Upgrade", "h2c", "HTTP2-Settings",
			"AAMAAABkAAQAAP__"); !a.has(200, text) {
			t.Errorf("%s, with HTTP/2 offered: %d %s", path, a.code, a.body)
		}
	}
	c.setDown(false)
	if a := send(t, s.socket, "POST", local+maps, nil); a.code != 200 {
		t.Errorf("up again: %d %s", a.code, a.body)
	}
	large := io.LimitReader(zeros{}, DefaultLimits.Body+1)
	if a := send(t, s.socket, "POST", local+maps, large); a.code != 413 {
		t.Errorf("a large body: %d %s", a.code, a.body)
	}
}

// TestSilentServer: a server that lets a request wait in vain is left alone for a while. The
// answers meanwhile come at once, and say when it is tried again.
func TestSilentServer(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Clock: clock})})
	c.setDown(true)
	vain := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.vain
	}
	expect := func(when string, tried bool, left time.Duration) {
		t.Helper()
		before := vain()
		a := s.get("/api/v1/pods")
		if a.code != 503 || vain() > before != tried {
			t.Errorf("%s: %d %s, %d requests", when, a.code, a.body, vain()-before)
		}
		if until, err := http.ParseTime(a.header.Get("Retry-After")); err != nil ||
			until.Sub(clock.Now().Add(left)).Abs() > time.Second {
			t.Errorf("%s: Retry-After %q, %v", when, a.header.Get("Retry-After"), err)
		}
	}
	expect("it fails at once", true, time.Second)
	expect("it fails at once, again", true, time.Second)
	c.mu.Lock()
	c.waits = func() { clock.Step(patience) }
	c.mu.Unlock()
	expect("it waits", true, longPause)
	expect("at once after that", false, longPause)
	clock.Step(longPause - time.Second)
	expect("a second before the end", false, time.Second)
	if a := s.get(maps); a.code != 200 {
		t.Errorf("what the file has: %d %s", a.code, a.body)
	}
	clock.Step(time.Second)
	expect("after the pause", true, longPause)
	c.setDown(false)
	clock.Step(longPause)
	if a := s.get("/api/v1/pods"); a.code != 200 {
		t.Errorf("up again: %d %s", a.code, a.body)
	}
}

// TestSilentDiscovery: documents of discovery are waited for, too, but only once.
func TestSilentDiscovery(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	link := c.link(t, LinkOptions{Clock: clock})
	c.setDown(true)
	ends := make(chan struct{})
	defer close(ends)
	for range 3 {
		ctx := expiring{t.Context(), make(chan struct{})} // discovery has a deadline
		c.mu.Lock()
		c.waits = func() { clock.Step(patience); close(ctx.over); <-ends }
		c.mu.Unlock()
		w := httptest.NewRecorder()
		link.ServeHTTP(w, withCaller(httptest.NewRequestWithContext(ctx, http.MethodGet, "/apis", nil),
			&caller{same: true}))
		c.mu.Lock()
		vain := c.vain
		c.mu.Unlock()
		if w.Code != 503 || vain != 1 {
			t.Errorf("%d %s, %d requests", w.Code, w.Body, vain)
		}
	}
}

// TestDiscoveryBreaksOff: if the server's answer breaks off, the file's is complete. A watch
// that the server breaks off ends in order, and anything else breaks off.
func TestDiscoveryBreaksOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"kind":`)      // the test sees it missing
		_ = http.NewResponseController(w).Flush() // likewise
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{})})
	for path, text := range map[string]string{"/api": `"v1"`, "/api/v1": `"configmaps"`, "/version": "kubewake"} {
		if a := s.get(path); !a.has(200, text) {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
	for query, want := range map[string]string{"?watch=true": `{"kind":`, "": `{"kind":unexpected EOF`} {
		if a := s.get("/api/v1/pods" + query); a.code != 200 || a.body != want {
			t.Errorf("%q: %d %s", query, a.code, a.body)
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestStreams: requests that upgrade to a bidirectional stream pass with the caller's
// identity, and a followed log comes as it is written.
func TestStreams(t *testing.T) {
	c := newCluster(t)
	ours := newAuthority(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	r := s.remote(ours)
	const exec = "/api/v1/namespaces/a/pods/p/exec?command=sh"
	for _, protocol := range []string{"SPDY/3.1", "websocket"} {
		conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		if line := upgrade(t, conn, exec, protocol, ""); line != "hello\n" || c.last().as != "own" {
			t.Errorf("%s: %q as %s", protocol, line, c.last().as)
		}
		_ = conn.Close() // it has done its work
		cfg := r.client(ours, pkix.Name{CommonName: "bob"}).Transport.(*http.Transport).TLSClientConfig
		cfg.NextProtos = []string{"http/1.1"}
		tconn, err := tls.Dial("tcp", strings.TrimPrefix(r.addr, "https://"), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if line := upgrade(t, tconn, exec, protocol, ""); line != "hello\n" || c.last().as != "own as bob " {
			t.Errorf("%s: %q as %s", protocol, line, c.last().as)
		}
		_ = tconn.Close() // it has done its work
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		local+"/api/v1/namespaces/a/pods/p/log?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.socket.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "one line\n" {
		t.Errorf("%q %v", line, err)
	}
}

// TestDiscoveryUnion: clients find the types of the file and of the server, in each form
// of discovery, and offline those of the file.
func TestDiscoveryUnion(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{Secrets: true}), Link: c.link(t, LinkOptions{})})
	find := func(legacy bool, resource string) bool {
		dc := discovery.NewDiscoveryClientForConfigOrDie(&rest.Config{Host: local, Transport: s.socket.Transport})
		dc.UseLegacyDiscovery = legacy
		groups, err := restmapper.GetAPIGroupResources(dc)
		if err != nil {
			t.Fatal(err)
		}
		_, err = restmapper.NewDiscoveryRESTMapper(groups).ResourceFor(schema.GroupVersionResource{Resource: resource})
		return err == nil
	}
	for _, down := range []bool{false, true} {
		c.setDown(down)
		for _, legacy := range []bool{true, false} {
			for resource, want := range map[string]bool{"configmaps": true, "secrets": true, "pods": !down,
				"deployments": !down, "none": false} {
				if got := find(legacy, resource); got != want {
					t.Errorf("down %v, legacy %v: %s: %v", down, legacy, resource, got)
				}
			}
		}
	}
}

// TestQueriesThatDoNotParse: what a service gets through the server's proxy is what the client
// has sent, in path and query.
func TestQueriesThatDoNotParse(t *testing.T) {
	asked, last := make(chan string, 20), ""
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.RequestURI
	}))
	defer server.Close()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, server, LinkOptions{})})
	for _, uri := range []string{
		"/api/v1/namespaces/a/services/s:80/proxy/a%2Fb//c/d?x=%2F;y=1",
		"/api/v1/namespaces/a/services/s:80/proxy/?q=%zz&b=1&a", "/api/v1/pods?",
	} {
		conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET "+uri+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		for got := last; got == last; { // which may be sent twice, see isStray
			select {
			case got = <-asked:
			case <-time.After(time.Minute):
				t.Fatalf("%s was not passed on", uri)
			}
			if got != last && got != uri {
				t.Errorf("%s was sent, not %s", got, uri)
			}
		}
		last = uri
		_ = conn.Close() // it was read
	}
}

// TestUnchangedDiscovery: a client that has the document of all groups does not get it again,
// also offline, when it is another one.
func TestUnchangedDiscovery(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{})})
	tags := map[string]bool{}
	for _, path := range []string{"/api", "/apis"} {
		for _, down := range []bool{false, true} {
			c.setDown(down)
			a := s.get(path, "Accept", kubeapi.MediaDiscovery)
			tag := a.header.Get("Etag")
			b := s.get(path, "Accept", kubeapi.MediaDiscovery, "If-None-Match", tag)
			if tag == "" || a.code != 200 || b.code != 304 || b.body != "" {
				t.Errorf("%s, down %v: %d %q, then %d %s", path, down, a.code, tag, b.code, b.body)
			}
			if h := send(t, s.socket, http.MethodHead, local+path, nil, "Accept",
				kubeapi.MediaDiscovery); h.code == 200 && h.header.Get("Etag") != tag {
				t.Errorf("HEAD %s, down %v: %q, not %q", path, down, h.header.Get("Etag"), tag)
			}
			tags[tag] = true
		}
	}
	if len(tags) != 4 {
		t.Errorf("four documents have the tags %v", tags)
	}
}
