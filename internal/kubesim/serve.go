package kubesim

import (
	"context"
	"net/http"
	"strings"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// genKey is the context's key of the generation that a request belongs to.
type genKey struct{}

// generationOf returns the generation at the time of the request's arrival.
func generationOf(ctx context.Context) *generation { return ctx.Value(genKey{}).(*generation) }

// handler is the API over the server's objects.
func (s *Server) handler() *kubeapi.Handler {
	return &kubeapi.Handler{
		Storage: storage{s},
		Clock:   s.clock,
		Version: s.version,
		Failed: func(r *http.Request, err error) {
			s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		},
		NoBookmarks: s.opts.NoBookmarks,
		Write:       s.write,
	}
}

// ServeHTTP answers one API request. Server is a http.Handler so that tests can
// put it behind a listener of their own.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	gen := s.enter()
	if gen == nil {
		panic(http.ErrAbortHandler)
	}
	defer s.serving.Done()
	p := kubeapi.ParsePath(r.URL.Path)
	rec := s.requests.add(r, p, s.clock.Now())
	defer s.requests.update(rec, func(r *RequestRecord) { r.Open = false })
	if s.OnRequest != nil {
		s.OnRequest(r)
	}
	rw := &recorder{ResponseWriter: w, rec: rec, log: &s.requests, wait: func() { s.waitStall(r.Context(), gen) },
		pace: func(n int) { s.pace(r.Context(), n) }}
	rw.wait()
	w.Header().Set("Cache-Control", "no-cache, private")
	if s.fault(rw, r, p.Resource != "") {
		return
	}
	if name, ok := strings.CutPrefix(r.URL.Path, definitions); ok && r.Method == http.MethodGet {
		s.serveDefinition(rw, r, name)
		return
	}
	if strings.HasPrefix(r.URL.Path, schemas) {
		s.serveSchema(rw, r)
		return
	}
	s.api.ServeHTTP(rw, r.WithContext(context.WithValue(r.Context(), genKey{}, gen)))
}
