package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/rest"
)

// patience bounds each request and each wait for an event.
const patience = time.Minute

const jsonType = "application/json"

// client speaks HTTP to one server: the tests compare the bytes on the wire.
type client struct {
	host string
	http *http.Client
}

func newClient(t *testing.T, cfg *rest.Config) *client {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.DisableCompression = true // the cases ask for it themselves
	hc, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hc.CloseIdleConnections)
	return &client{host: cfg.Host, http: hc}
}

// answer to a request that is not a watch.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// do sends a request and repeats it as long as the server answers 429, as it does while
// it fills its caches.
func (c *client) do(t *testing.T, method, path string, header http.Header, body []byte) *answer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp := c.send(ctx, t, method, path, header, body)
	defer resp.Body.Close()
	out, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return &answer{code: resp.StatusCode, header: resp.Header, body: out}
}

func (c *client) send(
	ctx context.Context, t *testing.T, method, path string, header http.Header, body []byte,
) *http.Response {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, method, c.host+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		if header != nil {
			req.Header = header.Clone()
		}
		resp, err := c.http.Do(req)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		if resp.StatusCode != http.StatusTooManyRequests {
			return resp
		}
		resp.Body.Close()
		<-tick.C
	}
}

func accept(mediaType string) http.Header { return http.Header{"Accept": {mediaType}} }

// get reads path, with any answer.
func (c *client) get(t *testing.T, path string) *answer {
	t.Helper()
	return c.do(t, http.MethodGet, path, accept(jsonType), nil)
}

// list reads path and expects a list.
func (c *client) list(t *testing.T, path string) *unstructured.UnstructuredList {
	t.Helper()
	a := c.get(t, path)
	if a.code != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, a.code, a.body)
	}
	return decodeList(t, a.body)
}

func decodeList(t *testing.T, body []byte) *unstructured.UnstructuredList {
	t.Helper()
	out := &unstructured.UnstructuredList{Object: decode(t, body)}
	items, _ := out.Object["items"].([]any)
	for _, item := range items {
		out.Items = append(out.Items, unstructured.Unstructured{Object: item.(map[string]any)})
	}
	return out
}

// decode reads JSON with whole numbers as int64.
func decode(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal(body, &out); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	return out
}

// status reads path and expects a failure with this code and reason.
func (c *client) status(t *testing.T, path string, code int, reason metav1.StatusReason) *metav1.Status {
	t.Helper()
	a := c.get(t, path)
	st := &metav1.Status{}
	if err := json.Unmarshal(a.body, st); err != nil {
		t.Fatalf("GET %s: %d %s", path, a.code, a.body)
	}
	if a.code != code || st.Kind != "Status" || int(st.Code) != code || st.Status != metav1.StatusFailure ||
		st.Reason != reason {
		t.Errorf("GET %s: got %d %s, want a status %d %s", path, a.code, a.body, code, reason)
	}
	return st
}

// event of a watch.
type event struct {
	Type   string
	Object unstructured.Unstructured
}

func (e event) name() string { return e.Object.GetName() }

// stream is an open watch.
type stream struct {
	header       http.Header
	sent, opened time.Time  // the request; its answer, as it was noticed
	events       chan event // closed at the end of the stream
}

// watch opens a watch and expects it to be accepted. It ends with the test.
func (c *client) watch(t *testing.T, path, query string) *stream {
	t.Helper()
	return c.watchAs(t, path, query, jsonType)
}

func (c *client) watchAs(t *testing.T, path, query, mediaType string) *stream {
	t.Helper()
	sent := time.Now()
	resp := c.send(t.Context(), t, http.MethodGet, path+"?watch=true&"+query, accept(mediaType), nil)
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("watch %s: %s %s", query, resp.Status, body)
	}
	s := &stream{header: resp.Header, sent: sent, opened: time.Now(), events: make(chan event, 100)}
	t.Cleanup(func() {
		resp.Body.Close()
		for range s.events {
		}
	})
	go func() {
		defer close(s.events)
		in := json.NewDecoder(resp.Body)
		for {
			var raw struct {
				Type   string
				Object json.RawMessage
			}
			e := event{}
			if in.Decode(&raw) != nil || utiljson.Unmarshal(raw.Object, &e.Object.Object) != nil {
				return
			}
			e.Type = raw.Type
			s.events <- e
		}
	}()
	return s
}

var errEnd = errors.New("the stream has ended")

// next waits for an event; errEnd says that there will be none.
func (s *stream) next(t *testing.T) (event, error) {
	t.Helper()
	select {
	case e, ok := <-s.events:
		if !ok {
			return e, errEnd
		}
		return e, nil
	case <-time.After(patience):
		t.Fatal("no event, and no end of the stream")
		return event{}, nil
	}
}

// expect reads as many events as there are in want, written "TYPE name", and
// returns them.
func (s *stream) expect(t *testing.T, want ...string) []event {
	t.Helper()
	var out []event
	var got []string
	for range want {
		e, err := s.next(t)
		if err != nil {
			t.Fatalf("got %v, then %v; want %v", got, err, want)
		}
		out = append(out, e)
		got = append(got, strings.TrimSpace(e.Type+" "+e.name()))
	}
	if strings.Join(got, ",") != strings.Join(want, ",") {
		t.Fatalf("got %v, want %v", got, want)
	}
	return out
}

// expectEnd reads up to the end of the stream, which must come without another event.
func (s *stream) expectEnd(t *testing.T) {
	t.Helper()
	if e, err := s.next(t); err == nil {
		t.Fatalf("got %s %v, want the end of the stream", e.Type, e.Object.Object)
	}
}

// version parses a resourceVersion.
func version(t *testing.T, rv string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		t.Fatalf("resourceVersion: %v", err)
	}
	return v
}

// newer fails unless version a is after b.
func newer(t *testing.T, what, a, b string) {
	t.Helper()
	if version(t, a) <= version(t, b) {
		t.Errorf("%s: version %s, want one after %s", what, a, b)
	}
}

// atLeast fails if version a is before b.
func atLeast(t *testing.T, what, a, b string) {
	t.Helper()
	if version(t, a) < version(t, b) {
		t.Errorf("%s: version %s, want %s or later", what, a, b)
	}
}
