package packed

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestRoundTrip: the caller reads what the server has sent, unpacked only if packing was our
// idea, and the bytes count as they came over the link.
func TestRoundTrip(t *testing.T) {
	text := strings.Repeat("a list of pods, ", 1000)
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		pack     bool
		method   string
		header   http.Header
		encoding []string // of the answer
		unpacked bool     // by the transport beneath
		body     string
		asked    string // the encoding that the server is asked for
		read     string
		sent     int
	}{
		"packed by us": {pack: true, encoding: []string{"gzip"}, body: zipped.String(), asked: "gzip",
			read: text, sent: zipped.Len()},
		"an old name, in capitals": {pack: true, encoding: []string{"X-GZIP"}, body: zipped.String(),
			asked: "gzip", read: text, sent: zipped.Len()},
		"beside identity": {pack: true, encoding: []string{"identity, gzip"}, body: zipped.String(),
			asked: "gzip", read: text, sent: zipped.Len()},
		"the server does not pack": {pack: true, body: text, asked: "gzip", read: text, sent: len(text)},
		"another encoding": {pack: true, encoding: []string{"br"}, body: "odd", asked: "gzip", read: "odd",
			sent: 3},
		"packed twice": {pack: true, encoding: []string{"gzip", "gzip"}, body: "odd", asked: "gzip",
			read: "odd", sent: 3},
		"not to be packed": {body: text, read: text, sent: len(text)},
		"the caller unpacks": {pack: true, header: http.Header{"Accept-Encoding": {"gzip"}},
			encoding: []string{"gzip"}, body: zipped.String(), asked: "gzip", read: zipped.String(),
			sent: zipped.Len()},
		"a part": {pack: true, header: http.Header{"Range": {"bytes=0-9"}}, body: text,
			read: text, sent: len(text)},
		"a write":                     {pack: true, method: http.MethodPost, body: text, read: text, sent: len(text)},
		"unpacked beneath: not known": {encoding: []string{"gzip"}, unpacked: true, body: text, read: text},
	} {
		t.Run(name, func(t *testing.T) {
			req, err := http.NewRequestWithContext(t.Context(), c.method, "http://server/pods", nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.header != nil {
				req.Header = c.header.Clone()
			}
			server := roundTripper(func(r *http.Request) (*http.Response, error) {
				if got := r.Header.Get("Accept-Encoding"); got != c.asked {
					t.Errorf("the server was asked for %q", got)
				}
				h := http.Header{"Content-Encoding": c.encoding, "Content-Length": {"1"}}
				return &http.Response{Header: h, ContentLength: 1, Uncompressed: c.unpacked,
					Body: io.NopCloser(strings.NewReader(c.body))}, nil
			})
			var sent atomic.Int64
			resp, err := RoundTrip(server, req, c.pack, &sent)
			if err != nil {
				t.Fatal(err)
			}
			read, err := io.ReadAll(resp.Body)
			if err != nil || string(read) != c.read || int(sent.Load()) != c.sent {
				t.Errorf("read %d bytes, %d over the link, %v", len(read), sent.Load(), err)
			}
			if changed := c.read != c.body; resp.Uncompressed != (changed || c.unpacked) || changed &&
				(resp.ContentLength != -1 || resp.Header.Get("Content-Length") != "" || len(By(resp.Header)) > 0) {
				t.Errorf("the answer says uncompressed %v, length %d, %v", resp.Uncompressed, resp.ContentLength,
					resp.Header)
			}
			if got := req.Header.Get("Accept-Encoding"); got != c.header.Get("Accept-Encoding") {
				t.Errorf("the caller's request was changed: %q", got)
			}
			if err := resp.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestNotPacked: a body that is not what its header says is an error each time it is read.
func TestNotPacked(t *testing.T) {
	server := roundTripper(func(*http.Request) (*http.Response, error) {
		return &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}},
			Body: io.NopCloser(strings.NewReader("plain text, and more of it"))}, nil
	})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://server/pods", nil)
	if err != nil {
		t.Fatal(err)
	}
	var sent atomic.Int64
	resp, err := RoundTrip(server, req, true, &sent)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		//nolint:errorlint // io.Reader's own
		if n, err := resp.Body.Read(make([]byte, 10)); n > 0 || err == nil || err == io.EOF {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
}

// TestBy: the names of encodings have no case, and "identity" is none.
func TestBy(t *testing.T) {
	got := By(http.Header{"Content-Encoding": {" GZIP ,identity", "", "Br"}})
	if !slices.Equal(got, []string{"gzip", "br"}) {
		t.Errorf("%q", got)
	}
}
