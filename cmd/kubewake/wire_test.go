package main

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestPackedAnswers: answers are unpacked however their header is spelt, and their bytes
// are counted as sent.
func TestPackedAnswers(t *testing.T) {
	for name, encodings := range map[string][]string{
		"plain": nil, "gzip": {"gzip"}, "capitals": {"GZIP"}, "old name": {"x-gzip"}, "spaces": {" Gzip "},
		"two lines": {"identity", "gzip"},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.Header()["Content-Encoding"] = encodings
				var out io.Writer = w
				if encodings != nil {
					zip := gzip.NewWriter(w)
					defer func() { _ = zip.Close() }()
					out = zip
				}
				_, _ = io.WriteString(out, `{"major":"1","minor":"36"}`)
			}))
			defer server.Close()
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			cmd, m := mirrorCommand(streams)
			if err := cmd.ParseFlags([]string{"--server", server.URL, "--insecure-skip-tls-verify"}); err != nil {
				t.Fatal(err)
			}
			if _, err := m.config(); err != nil {
				t.Fatal(err)
			}
			client, err := m.flags.ToDiscoveryClient()
			if err != nil {
				t.Fatal(err)
			}
			if v, err := client.ServerVersion(); err != nil || v.Minor != "36" {
				t.Errorf("%+v %v", v, err)
			}
			if m.stats.requests.Load() == 0 || m.stats.bytes.Load() == 0 {
				t.Errorf("%d requests, %d bytes", m.stats.requests.Load(), m.stats.bytes.Load())
			}
		})
	}
}

// TestPackedForTheCaller: a caller that asks for packed answers itself gets them packed,
// so that it can count what was sent.
func TestPackedForTheCaller(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		zip := gzip.NewWriter(w)
		_, _ = io.WriteString(zip, "text")
		_ = zip.Close()
	}))
	defer server.Close()
	var s stats
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := s.wrapper(true)(http.DefaultTransport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.Header.Get("Content-Encoding") != "gzip" || int64(len(b)) != s.bytes.Load() ||
		string(b) == "text" {
		t.Errorf("%q %v %v, %d bytes counted", b, err, resp.Header, s.bytes.Load())
	}
}
