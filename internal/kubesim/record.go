package kubesim

import (
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// RequestRecord has what one request asked for and what it got.
type RequestRecord struct {
	// Verb is get, list, watch, create, update, patch, delete or
	// deletecollection; discovery and health checks are get.
	Verb      string
	Path      string
	Query     url.Values
	UserAgent string
	// Metadata is true if the request asks for objects' metadata only.
	Metadata bool

	// Resource is the plural name with its group ("pods", "deployments.apps"),
	// empty if the path names none.
	Resource                     string
	Namespace, Name              string
	LabelSelector, FieldSelector string

	// Status is the HTTP status, 0 if the connection broke before one was sent.
	Status int
	// BodyBytes counts the response body as sent, compressed if it was.
	BodyBytes int64
	// Items counts the objects in a list, or the events of a watch that carry
	// an object: bookmarks and errors do not.
	Items int
	// Start is on the server's clock.
	Start time.Time
	// Open is true as long as the request is being served.
	Open bool
}

// FullRead reports whether the request transferred state rather than changes:
// a list that returned objects and was no probe with limit=1, or a watch that
// began with the initial state.
func (r RequestRecord) FullRead() bool {
	switch r.Verb {
	case "list":
		return r.Items > 0 && r.Query.Get("limit") != "1"
	case "watch":
		switch r.Query.Get("sendInitialEvents") {
		case "true", "1":
			return true
		case "false", "0":
			return false
		}
		rv := r.Query.Get("resourceVersion")
		return rv == "" || rv == "0"
	}
	return false
}

// Requests returns all requests since New or ResetRequests in the order of
// their arrival, those still open included.
func (s *Server) Requests() []RequestRecord { return s.requests.snapshot() }

// ResetRequests forgets the requests so far. Those still open are not seen
// again.
func (s *Server) ResetRequests() {
	s.requests.mu.Lock()
	defer s.requests.mu.Unlock()
	s.requests.records = nil
}

type requestLog struct {
	mu      sync.Mutex
	records []*RequestRecord
}

func (l *requestLog) snapshot() []RequestRecord {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]RequestRecord, len(l.records))
	for i, r := range l.records {
		out[i] = *r
	}
	return out
}

// add starts a record.
func (l *requestLog) add(r *http.Request, p kubeapi.Path, start time.Time) *RequestRecord {
	q := r.URL.Query()
	rec := &RequestRecord{
		Verb:          p.Verb(r.Method, q),
		Path:          r.URL.Path,
		Query:         q,
		UserAgent:     r.UserAgent(),
		Metadata:      strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata"),
		Namespace:     p.Namespace,
		Name:          p.Name,
		LabelSelector: q.Get("labelSelector"),
		FieldSelector: q.Get("fieldSelector"),
		Start:         start,
		Open:          true,
	}
	if p.Resource != "" {
		rec.Resource = schema.GroupResource{Group: p.GroupVersion.Group, Resource: p.Resource}.String()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, rec)
	return rec
}

func (l *requestLog) update(rec *RequestRecord, f func(*RequestRecord)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(rec)
}

// recorder counts the bytes written to a response and holds them back in a stall.
type recorder struct {
	http.ResponseWriter
	rec  *RequestRecord
	log  *requestLog
	wait func()
	pace func(n int)
}

func (w *recorder) WriteHeader(code int) {
	w.wait()
	w.log.update(w.rec, func(r *RequestRecord) { r.Status = code })
	w.ResponseWriter.WriteHeader(code)
}

func (w *recorder) Write(b []byte) (int, error) {
	written := 0
	for {
		part := b[written:min(len(b), written+4096)]
		n, err := w.write(part)
		if written += n; err != nil || written == len(b) {
			return written, err
		}
	}
}

func (w *recorder) write(b []byte) (int, error) {
	w.wait()
	w.pace(len(b))
	n, err := w.ResponseWriter.Write(b)
	w.log.update(w.rec, func(r *RequestRecord) {
		if r.Status == 0 {
			r.Status = http.StatusOK
		}
		r.BodyBytes += int64(n)
	})
	return n, err
}

func (w *recorder) Flush() { w.ResponseWriter.(http.Flusher).Flush() }

// Items counts objects, for package kubeapi.
func (w *recorder) Items(n int) {
	w.log.update(w.rec, func(r *RequestRecord) { r.Items += n })
}
