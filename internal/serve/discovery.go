package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// isDiscovery says whether a path, which has no resource, is a document of discovery.
func isDiscovery(path string, p kubeapi.Path) bool {
	path = strings.TrimSuffix(path, "/")
	group, ok := strings.CutPrefix(path, "/apis/")
	return path == "/api" || path == "/apis" || ok && group != "" && !strings.Contains(group, "/") ||
		p.GroupVersion.Version != ""
}

// answer is an answer that is not sent yet.
type answer struct {
	header http.Header
	code   int
	body   bytes.Buffer
	late   bool // it did not come in time
}

func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter. Interim answers, such as 100 and 103, are left
// out: the final one has the code.
func (a *answer) WriteHeader(code int) {
	if a.code == 0 && code >= http.StatusOK {
		a.code = code
	}
}

func (a *answer) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

// send sends the answer, whose size is known.
func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		if name != "Content-Length" && name != "Transfer-Encoding" {
			w.Header()[name] = values
		}
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body.Bytes()) // the client left
}

// sendDocument is send for a document of discovery, which the client may have.
func (a *answer) sendDocument(w http.ResponseWriter, r *http.Request) {
	if a.code != http.StatusOK || !a.aggregated() {
		a.send(w)
		return
	}
	w.Header().Set("Cache-Control", "no-cache, private")
	kubeapi.WriteDiscovery(w, r, a.body.Bytes())
}

func (a *answer) aggregated() bool {
	return strings.Contains(a.header.Get("Content-Type"), "as=APIGroupDiscoveryList")
}

// inTime gives the server the time that it has for an answer that the file can also give. A
// connection that cannot be made has failed by then.
func inTime(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, patience+time.Second)
}

// limit bounds the time of a request.
type limit func(context.Context) (context.Context, context.CancelFunc)

// document asks the server for a document that the file also has a form of. If one did not
// come in time, the server is asked for none for a while. Its link may be too slow for a
// whole document, and good for other requests.
func (s *Server) document(r *http.Request, accept string) *answer {
	if _, err := s.documents.silent(); err != nil {
		return &answer{header: http.Header{}, code: http.StatusServiceUnavailable}
	}
	began := s.documents.clock.Now()
	a := askFor(s.inTime, s.onward, r, accept)
	if a.late && r.Context().Err() == nil { // the caller is there
		s.documents.failed(began, errLate)
	}
	return a
}

var errLate = errors.New("the server's last document did not come in time")

// ask collects the answer of a handler.
func ask(h http.Handler, r *http.Request, accept string) *answer { return askFor(inTime, h, r, accept) }

// askFor is ask for a handler that has the time which inTime gives it.
func askFor(inTime limit, h http.Handler, r *http.Request, accept string) *answer {
	caller := r.Context()
	ctx, cancel := inTime(caller)
	defer cancel()
	r = r.Clone(ctx)
	for _, name := range []string{"Accept-Encoding", "If-None-Match", "If-Modified-Since", "Range"} {
		r.Header.Del(name)
	}
	r.Header.Set("Accept", accept)
	a := &answer{header: http.Header{}}
	func() {
		defer func() {
			switch p := recover(); {
			case p == nil:
			case p != http.ErrAbortHandler, caller.Err() != nil: //nolint:errorlint // a panic's value
				panic(p)
			default:
				a.code = http.StatusServiceUnavailable // it took too long, or broke off
				a.body.Reset()
			}
			a.late = ctx.Err() != nil
		}()
		h.ServeHTTP(a, r)
	}()
	a.WriteHeader(http.StatusOK)
	return a
}

// withheld says whether the file's discovery counts in spite of the server's answer. That
// is so if there is no answer, or if the server refuses this process, whose user may read
// the file. Any other caller gets the refusal.
func (a *answer) withheld(r *http.Request) bool {
	refused := a.code == http.StatusUnauthorized || a.code == http.StatusForbidden
	return a.code >= http.StatusInternalServerError || refused && callerOf(r).same
}

// discovery answers with the types of the file and of the server together. If the server
// does not answer, these are the file's.
func (s *Server) discovery(w http.ResponseWriter, r *http.Request) {
	file := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.file.ServeFile(w, r, nil) })
	accept := kubeapi.MediaJSON
	if kubeapi.AcceptsAggregated(r) {
		accept = kubeapi.MediaDiscovery + "," + kubeapi.MediaJSON
	}
	theirs := s.document(r, accept)
	if r.Method == http.MethodHead && theirs.code == http.StatusOK {
		r = r.Clone(r.Context())
		r.Method = http.MethodGet // the answer's header is about the document
		s.discovery(w, r)
		return
	}
	if theirs.code == http.StatusOK && !theirs.aggregated() {
		accept = kubeapi.MediaJSON
	}
	ours := ask(file, r, accept)
	switch {
	case theirs.code == http.StatusNotFound && ours.code == http.StatusOK, theirs.withheld(r):
		ours.sendDocument(w, r)
	case theirs.code != http.StatusOK || ours.code != http.StatusOK:
		theirs.sendDocument(w, r)
	default:
		both, err := union(theirs, ours)
		if err != nil {
			both = theirs.body.Bytes() // an unknown form
		}
		out := &answer{header: http.Header{"Content-Type": theirs.header["Content-Type"],
			"Cache-Control": {"no-cache, private"}}, code: http.StatusOK}
		out.body.Write(both)
		out.sendDocument(w, r)
	}
}

// plain answers with the server's version or health, or with that of the file's API.
func (s *Server) plain(w http.ResponseWriter, r *http.Request) {
	theirs := s.document(r, kubeapi.MediaJSON)
	if theirs.withheld(r) {
		s.file.ServeFile(w, r, nil)
		return
	}
	theirs.send(w)
}

// union is a document of discovery with the types of both. Where both have a type, it is
// as the server has it.
func union(theirs, ours *answer) ([]byte, error) {
	var kind metav1.TypeMeta
	if err := json.Unmarshal(theirs.body.Bytes(), &kind); err != nil {
		return nil, err
	}
	switch kind.Kind {
	case "APIGroupDiscoveryList":
		return merged(theirs, ours, mergeAggregated)
	case "APIGroupList":
		return merged(theirs, ours, func(a, b *metav1.APIGroupList) {
			a.Groups = add(a.Groups, b.Groups, func(g metav1.APIGroup) string { return g.Name }, mergeGroup)
		})
	case "APIGroup":
		return merged(theirs, ours, mergeGroup)
	case "APIResourceList":
		return merged(theirs, ours, func(a, b *metav1.APIResourceList) {
			a.APIResources = add(a.APIResources, b.APIResources, func(r metav1.APIResource) string {
				return r.Name
			}, nil)
		})
	}
	return theirs.body.Bytes(), nil
}

func merged[T any](theirs, ours *answer, merge func(a, b *T)) ([]byte, error) {
	var a, b T
	if err := json.Unmarshal(theirs.body.Bytes(), &a); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(ours.body.Bytes(), &b); err != nil {
		return nil, err
	}
	merge(&a, &b)
	return json.Marshal(a)
}

// add adds the elements to a that only b has, by name. Elements that both have are
// merged.
func add[T any](a, b []T, name func(T) string, merge func(a, b *T)) []T {
	for i := range b {
		at := slices.IndexFunc(a, func(t T) bool { return name(t) == name(b[i]) })
		switch {
		case at < 0:
			a = append(a, b[i])
		case merge != nil:
			merge(&a[at], &b[i])
		}
	}
	return a
}

func mergeGroup(a, b *metav1.APIGroup) {
	a.Versions = add(a.Versions, b.Versions, func(v metav1.GroupVersionForDiscovery) string { return v.Version }, nil)
}

func mergeAggregated(a, b *apidiscoveryv2.APIGroupDiscoveryList) {
	a.Items = add(a.Items, b.Items, func(g apidiscoveryv2.APIGroupDiscovery) string {
		return g.Name
	}, func(a, b *apidiscoveryv2.APIGroupDiscovery) {
		a.Versions = add(a.Versions, b.Versions, func(v apidiscoveryv2.APIVersionDiscovery) string {
			return v.Version
		}, func(a, b *apidiscoveryv2.APIVersionDiscovery) {
			a.Resources = add(a.Resources, b.Resources, func(r apidiscoveryv2.APIResourceDiscovery) string {
				return r.Resource
			}, nil)
		})
	})
}
