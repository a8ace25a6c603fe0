package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// TestDisableCompression: answers are compressed unless the flag says not to.
func TestDisableCompression(t *testing.T) {
	asked := make(chan string, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Header.Get("Accept-Encoding")
	}))
	defer server.Close()
	for want, args := range map[string][]string{"gzip": nil, "": {"--disable-compression"}} {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		cmd, m := mirrorCommand(streams)
		if err := cmd.ParseFlags(append(args, "--server", server.URL, "--insecure-skip-tls-verify")); err != nil {
			t.Fatal(err)
		}
		cfg, err := m.config()
		if err != nil {
			t.Fatal(err)
		}
		// whatever it says
		_, _ = kubernetes.NewForConfigOrDie(cfg).Discovery().RESTClient().Get().AbsPath("/").DoRaw(t.Context())
		if got := <-asked; got != want {
			t.Errorf("%q: asks for %q", args, got)
		}
	}
}

// TestMirrorOptions: flags about the file become its options, and the library chooses
// the rest.
func TestMirrorOptions(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want boltstore.Options
	}{
		{nil, boltstore.Options{}},
		{[]string{"--no-sync"}, boltstore.Options{Durability: boltstore.DurabilityProcess}},
		{[]string{"--window", "2s"}, boltstore.Options{Window: 2 * time.Second}},
		{[]string{"--journal-bytes", "1000", "--journal-age", "24h"},
			boltstore.Options{JournalBytes: 1000, JournalAge: 24 * time.Hour}},
		{[]string{"--max-size", "1000000"}, boltstore.Options{MaxSize: 1000000}},
		{[]string{"--compress"}, boltstore.Options{Compression: boltstore.CompressionZstd}},
		{[]string{"--allow-unsafe-path"}, boltstore.Options{AllowUnsafePath: true}},
		{[]string{"--trust-clock"}, boltstore.Options{TrustClock: true}},
	} {
		streams, _, _, _ := genericiooptions.NewTestIOStreams()
		cmd, m := mirrorCommand(streams)
		if err := cmd.ParseFlags(tc.args); err != nil {
			t.Fatal(err)
		}
		got := m.options()
		if got.ReplaceForeign || got.Logger == nil {
			t.Errorf("%q: %+v", tc.args, got)
		}
		if got.ObjectMemory >= 0 {
			t.Errorf("%q: objects are kept in memory that nobody reads", tc.args)
		}
		got.Logger, got.ObjectMemory = nil, 0
		if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%q: got %+v, want %+v", tc.args, got, tc.want)
		}
	}
}

// TestHTTPLimits: callers of --http cannot take memory or connections for long.
func TestHTTPLimits(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpServer(http.NotFoundHandler())
	server.Start()
	defer server.Close()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Fill", strings.Repeat("x", 100<<10))
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if c := server.Config; resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge ||
		min(c.ReadHeaderTimeout, c.ReadTimeout, c.WriteTimeout, c.IdleTimeout) <= 0 {
		t.Errorf("%s; %+v", resp.Status, c)
	}
}

// TestHTTPForThisHost: over loopback --http answers requests for addresses and localhost. Any
// other name may be one that a page in a browser has led here.
func TestHTTPForThisHost(t *testing.T) {
	server := httptest.NewServer(forThisHost(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	defer server.Close()
	for host, want := range map[string]int{
		"localhost:8080": 200, "LOCALHOST": 200, "127.0.0.1:8080": 200, "[::1]:8080": 200, "[::1]": 200,
		"10.0.0.7":         200,
		"evil.example.com": 421, "evil.example.com:8080": 421, "localhost.evil.example.com": 421,
		"127.0.0.1.evil.example.com": 421,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := server.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); err != nil || resp.StatusCode != want {
			t.Errorf("%s: %s, %v", host, resp.Status, err)
		}
	}
	// Elsewhere a name may be that of a service.
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://mirror.edge.svc/", nil)
	at := context.WithValue(r.Context(), http.LocalAddrContextKey,
		net.Addr(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 8080}))
	if forThisHost(http.NotFoundHandler()).ServeHTTP(w, r.WithContext(at)); w.Code != http.StatusNotFound {
		t.Errorf("at another address: %d", w.Code)
	}
}

// TestMirrorInterruptedAtStart: a mirror that is interrupted before it knows its types
// ends in order.
func TestMirrorInterruptedAtStart(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var errs bytes.Buffer
	args := []string{"mirror", "pods", "-A", "--server", "http://127.0.0.1:1", "--no-socket", "--db",
		filepath.Join(t.TempDir(), "f.db")}
	if code := run(ctx, genericiooptions.IOStreams{Out: io.Discard, ErrOut: &errs}, args); code != 0 {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
}

// TestEndsBeforeAnAnswer: a mirror that asks a silent server about its types ends at once.
// The link may be like that for hours.
func TestEndsBeforeAnAnswer(t *testing.T) {
	resources := `{"kind":"APIResourceList","groupVersion":"v1","resources":[{"name":"pods","singularName":"pod","namespaced":true,"kind":"Pod","verbs":["get","list","watch"]}]}`
	for name, answers := range map[string][]string{ // the paths that are answered, in turn
		"nothing":  nil,
		"groups":   {"/api", "/apis"},
		"resource": {"/api", "/apis", "/api/v1"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan struct{})
			left := answers
			var mu sync.Mutex
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				next := len(left) > 0 && slices.Contains(left, r.URL.Path)
				left = slices.DeleteFunc(slices.Clone(left), func(path string) bool { return path == r.URL.Path })
				mu.Unlock()
				if !next {
					cancel()
					select {
					case <-ended:
					case <-r.Context().Done():
					}
					return
				}
				w.Header().Set("Content-Type", "application/json")
				// the client may have left
				_, _ = io.WriteString(w, map[string]string{"/api": `{"kind":"APIVersions","versions":["v1"]}`,
					"/apis": `{"kind":"APIGroupList","groups":[]}`, "/api/v1": resources}[r.URL.Path])
			}))
			defer server.Close()
			defer close(ended)
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			began := time.Now()
			code := run(ctx, streams, []string{"mirror", "pods", "-A", "--db", filepath.Join(t.TempDir(), "f.db"),
				"--server", server.URL, "--no-socket"})
			if took := time.Since(began); code != 0 || took > 15*time.Second {
				t.Errorf("%d after %s: %s", code, took, errOut)
			}
		})
	}
}

// TestQuietCatchingUp: reads that wait for the server leave no lines in the log.
func TestQuietCatchingUp(t *testing.T) {
	const connecting, catching, live, offline = reflector.PhaseConnecting, reflector.PhaseCatchingUp,
		reflector.PhaseLive, reflector.PhaseOffline
	src := &source{}
	for i, step := range []struct {
		phase reflector.Phase
		tells bool
	}{
		{connecting, true}, {catching, true}, {live, true}, // a start
		{catching, false}, {live, false}, {catching, false}, {live, false}, // reads
		{catching, false}, {offline, true}, {connecting, true}, {live, true}, // the link is lost in the middle of one
		{connecting, true}, {catching, true}, {live, true},
	} {
		if got := src.tells(step.phase); got != step.tells {
			t.Errorf("%d, %s: %t", i, step.phase, got)
		}
	}
}
