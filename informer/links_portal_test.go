package informer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// spoilt are the ways in which a portal answers.
var spoilt = []string{"html", "object", "ok", "success", "maintenance", "null", "nothing", "redirect", "loop", "404",
	"403", "502", "text", "gzip", "short", "abort", "stall"}

// portal is a gateway before the server that spoils answers at random. Some of its
// answers end their HTTP/2 connection (GOAWAY).
type portal struct {
	sim *kubesim.Server

	mu      sync.Mutex
	r       *rand.Rand
	percent int
	kinds   []string
	stalled chan struct{} // closed when stalled answers go on
}

// spoil has so many of 100 answers spoilt, and earlier stalled ones go on.
func (p *portal) spoil(percent int, kinds []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.percent, p.kinds = percent, kinds
	if p.stalled != nil {
		close(p.stalled)
	}
	p.stalled = make(chan struct{})
}

func (p *portal) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	how, left, goAway, stalled := "", p.r.IntN(1+p.r.IntN(4000)), p.r.IntN(10) == 0, p.stalled
	if len(p.kinds) > 0 && p.r.IntN(100) < p.percent {
		how = p.kinds[p.r.IntN(len(p.kinds))]
	}
	p.mu.Unlock()
	if r.URL.Path == "/portal" {
		how = "html"
	}
	if goAway {
		w.Header().Set("Connection", "close")
	}
	say := func(code int, media, body string) {
		w.Header().Set("Content-Type", media)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}
	const media = "application/json"
	switch how {
	case "":
		p.sim.ServeHTTP(w, r)
	case "html":
		say(http.StatusOK, "text/html", "<html>log in</html>")
	case "object":
		say(http.StatusOK, media, "{}")
	case "ok":
		say(http.StatusOK, media, `{"status":"ok"}`)
	case "success":
		say(http.StatusOK, media, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`)
	case "maintenance":
		say(http.StatusOK, media, `{"kind":"Maintenance","until":"tomorrow"}`)
	case "null":
		say(http.StatusOK, media, "null")
	case "nothing":
		w.WriteHeader(http.StatusNoContent)
	case "redirect":
		http.Redirect(w, r, "/portal", http.StatusFound)
	case "loop":
		http.Redirect(w, r, r.URL.String(), http.StatusTemporaryRedirect)
	case "404":
		say(http.StatusNotFound, "text/plain", "404 page not found")
	case "403":
		say(http.StatusForbidden, "text/html", "<html>no</html>")
	case "502":
		say(http.StatusBadGateway, "text/html", "<html>bad</html>")
	case "text":
		p.sim.ServeHTTP(textWriter{w}, r)
	case "gzip":
		w.Header().Set("Content-Encoding", "gzip")
		say(http.StatusOK, media, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{},"items":[]}`)
	default:
		p.sim.ServeHTTP(&cutWriter{ResponseWriter: w, left: left, how: how, stalled: stalled, ctx: r.Context()}, r)
	}
}

// textWriter states that the answer is plain text.
type textWriter struct{ http.ResponseWriter }

func (w textWriter) WriteHeader(code int) {
	w.Header().Set("Content-Type", "text/plain")
	w.ResponseWriter.WriteHeader(code)
}

func (w textWriter) Write(b []byte) (int, error) {
	w.Header().Set("Content-Type", "text/plain")
	return w.ResponseWriter.Write(b)
}

func (w textWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// cutWriter has an answer stop after some bytes: it ends in good order ("short"), breaks
// off ("abort"), or goes on later ("stall").
type cutWriter struct {
	http.ResponseWriter
	left    int
	how     string
	stalled <-chan struct{}
	ctx     context.Context
}

func (w *cutWriter) Write(b []byte) (int, error) {
	n := min(len(b), w.left)
	if _, err := w.ResponseWriter.Write(b[:n]); err != nil {
		return 0, err
	}
	if w.left -= n; n == len(b) {
		return n, nil
	}
	w.Flush()
	switch w.how {
	case "short":
		return len(b), nil
	case "abort":
		panic(http.ErrAbortHandler)
	}
	select {
	case <-w.stalled:
	case <-w.ctx.Done():
		panic(http.ErrAbortHandler)
	}
	w.left = 1 << 30
	m, err := w.ResponseWriter.Write(b[n:])
	return n + m, err
}

func (w *cutWriter) Flush() { w.ResponseWriter.(http.Flusher).Flush() }
