package serve

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestInterimAnswers: a server, or a proxy before it, may send interim answers, such as 100
// and 103, before an answer that is collected here. The client gets the final one.
func TestInterimAnswers(t *testing.T) {
	const tag = `"1"`
	early := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = io.Copy(io.Discard, r.Body) // it sends 100 if the client waits for that
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Etag", tag)
		if r.URL.Path == "/version" {
			_, _ = io.WriteString(w, `{"gitVersion":"v1.2.3"}`)
			return
		}
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","message":"no"}`)
	}))
	early.StartTLS()
	defer early.Close()
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: linkTo(t, early, LinkOptions{})})
	if a := s.get("/version"); !a.has(200, "v1.2.3") {
		t.Errorf("version: %d %s", a.code, a.body)
	}
	a := send(t, s.socket, http.MethodPost, local+selfReviewPath, strings.NewReader(mayI(t, "list", "/pods", "a")),
		"Expect", "100-continue", "Content-Type", "application/json")
	if !a.has(403, "no") {
		t.Errorf("self review: %d %s", a.code, a.body)
	}
}
