package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestInProcess: a request in process is answered like one over a connection.
func TestInProcess(t *testing.T) {
	ended := make(chan error, 2)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/whole":
			w.Header().Set("Before", "1")
			w.WriteHeader(http.StatusTeapot)
			w.Header().Set("After", "1")
			fmt.Fprint(w, r.URL.Query().Get("q"))
		case "/silent":
		case "/breaks":
			fmt.Fprint(w, "half")
			panic(http.ErrAbortHandler)
		case "/fails":
			panic("a fault")
		case "/watch":
			fmt.Fprint(w, "first")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
			ended <- r.Context().Err()
		}
	})
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	transport := &inProcess{ctx, handler}
	ask := func(path string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://file"+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	all := func(resp *http.Response) (string, error) {
		b, err := io.ReadAll(resp.Body)
		return string(b), errors.Join(err, resp.Body.Close())
	}

	resp := ask("/whole?q=text")
	if text, err := all(resp); err != nil || text != "text" || resp.StatusCode != http.StatusTeapot ||
		resp.Header.Get("Before") != "1" || resp.Header.Get("After") != "" {
		t.Error(resp.StatusCode, resp.Header, text, err)
	}
	resp = ask("/silent")
	if text, err := all(resp); err != nil || text != "" || resp.StatusCode != http.StatusOK {
		t.Error(resp.StatusCode, text, err)
	}
	if text, err := all(ask("/breaks")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q %v", text, err) // as much as had been sent
	}
	if _, err := all(ask("/fails")); err == nil || !strings.Contains(err.Error(), "a fault") {
		t.Error(err)
	}

	// Flushed output arrives while the handler goes on. A client that has enough ends it.
	first := make([]byte, len("first"))
	resp = ask("/watch")
	if _, err := io.ReadFull(resp.Body, first); err != nil || string(first) != "first" {
		t.Errorf("%q %v", first, err)
	}
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	// So does the end of the command, which the client sees.
	interrupted := errors.New("interrupted")
	resp = ask("/watch")
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Error(err)
	}
	events := ask("/watch?watch=true")
	if _, err := io.ReadFull(events.Body, first); err != nil {
		t.Error(err)
	}
	cancel(interrupted)
	if _, err := all(resp); !errors.Is(err, interrupted) {
		t.Error(err)
	}
	if text, err := all(events); err != nil || text != "" { // an error would be printed as the watch's last object
		t.Errorf("%q %v", text, err)
	}
	<-ended
	<-ended
}

// TestDryRun: the effect of a patch on an object.
func TestDryRun(t *testing.T) {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"x:1"},{"name":"d"}]}}`
	const patch = `{"metadata":{"annotations":{}},"spec":{"containers":[{"name":"c","image":"x:2"}]}}`
	handler := dryRun(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/none") {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, pod)
	}))
	for _, tc := range []struct {
		method, path, how string
		code              int
		want              string
	}{
		{http.MethodPatch, "/a?dryRun=All", "application/strategic-merge-patch+json", 200,
			`"containers":[{"image":"x:2","name":"c"},{"name":"d"}]`},
		{http.MethodPatch, "/a?dryRun=All", "application/merge-patch+json", 200,
			`"containers":[{"image":"x:2","name":"c"}]`},
		{http.MethodPatch, "/a?dryRun=All", "application/apply-patch+yaml", 400, "no field managers"},
		{http.MethodPatch, "/a?dryRun=All", "application/json-patch+json", 400, "no patch of type"},
		{http.MethodPatch, "/none?dryRun=All", "application/merge-patch+json", 404, ""},
		{http.MethodPost, "/a?dryRun=All", "", 201, `"image":"x:2"`},
		// Without dryRun the file refuses.
		{http.MethodPatch, "/a", "application/merge-patch+json", 405, ""},
		{http.MethodPost, "/a", "", 405, ""},
		{http.MethodDelete, "/a?dryRun=All", "", 405, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tc.method, "http://file"+tc.path, strings.NewReader(patch))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", tc.how)
		resp, err := (&inProcess{t.Context(), handler}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != tc.code || !strings.Contains(string(body), tc.want) ||
			resp.StatusCode == 200 && strings.Contains(string(body), "annotations") {
			t.Errorf("%s %s %s: %d %s %v", tc.method, tc.path, tc.how, resp.StatusCode, body, err)
		}
	}
}
