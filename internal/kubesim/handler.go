package kubesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	mediaJSON  = "application/json"
	mediaProto = "application/vnd.kubernetes.protobuf"
)

// request is one call on a resource.
type request struct {
	*http.Request
	requestPath
	s   *Server
	t   *table
	w   *recorder
	gen *generation // at the time of its arrival
	enc encoding
}

func (s *Server) flowSchema() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.flow
}

// ServeHTTP answers one API request. Server is a http.Handler so that tests can
// put it behind a listener of their own.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	gen := s.enter()
	if gen == nil {
		panic(http.ErrAbortHandler)
	}
	defer s.serving.Done()
	p := parsePath(r.URL.Path)
	rec := s.requests.add(r, p, s.clock.Now())
	defer s.requests.update(rec, func(r *RequestRecord) { r.Open = false })
	if s.OnRequest != nil {
		s.OnRequest(r)
	}
	rw := &recorder{ResponseWriter: w, rec: rec, log: &s.requests, wait: func() { s.waitStall(r.Context(), gen) },
		pace: func(n int) { s.pace(r.Context(), n) }}
	rw.wait()
	w.Header().Set("Cache-Control", "no-cache, private")
	if s.fault(rw, r, p.resource != "") {
		return
	}
	if !s.opts.NoFlowSchemas {
		w.Header().Set(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID, s.flowSchema())
	}
	if name, ok := strings.CutPrefix(r.URL.Path, definitions); ok && r.Method == http.MethodGet {
		s.serveDefinition(rw, name)
		return
	}
	if p.resource == "" {
		s.serveDiscovery(rw, r, p)
		return
	}
	req := &request{Request: r, requestPath: p, s: s, w: rw, gen: gen}
	if err := req.serve(rec.Verb); err != nil {
		req.fail(err)
	}
}

func (r *request) serve(verb string) (err error) {
	r.t = r.s.tableByPath(r.gv, r.resource)
	if r.t == nil {
		if !r.s.isBuiltIn(r.gv) {
			http.NotFound(r.w, r.Request)
			return nil
		}
		return errNoResource()
	}
	if r.subresource != "" && r.subresource != "status" {
		return errNoResource()
	}
	if !r.t.Namespaced && r.namespace != "" {
		return errNoResource()
	}
	everywhere := r.t.Namespaced && r.namespace == ""
	if everywhere && r.name != "" {
		return errNoResource()
	}
	needsName := verb == "get" || verb == "update" || verb == "patch" || verb == "delete"
	if needsName != (r.name != "") || everywhere && verb != "list" && verb != "watch" {
		return apiStatus(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
			"the server does not allow this method on the requested resource")
	}
	if r.enc, err = r.negotiate(verb == "list" || verb == "deletecollection"); err != nil {
		return err
	}
	switch verb {
	case "get":
		return r.get()
	case "list":
		return r.list()
	case "watch":
		return r.watch()
	case "create":
		return r.post()
	case "update":
		return r.putObject()
	case "patch":
		return r.patch()
	case "delete":
		return r.delete()
	default:
		return r.deleteCollection()
	}
}

func errNoResource() error {
	return apiStatus(http.StatusNotFound, metav1.StatusReasonNotFound, "the server could not find the requested resource")
}

func apiStatus(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message, Details: &metav1.StatusDetails{},
	}}
}

// negotiate picks the first representation in the Accept header that the
// resource has.
func (r *request) negotiate(list bool) (encoding, error) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		return encoding{}, nil
	}
	for part := range strings.SplitSeq(accept, ",") {
		media, params, err := mime.ParseMediaType(strings.TrimSpace(part))
		if err != nil {
			continue
		}
		var enc encoding
		switch media {
		case mediaProto:
			enc.proto = true
		case mediaJSON, "application/*", "*/*":
		default:
			continue
		}
		switch as := params["as"]; as {
		case "":
			if enc.proto && r.t.kind.custom {
				continue
			}
			return enc, nil
		case metaKind.Kind, metaKind.Kind + "List":
			if params["g"] != metaKind.Group || params["v"] != metaKind.Version {
				continue
			}
			if list && as == metaKind.Kind {
				return enc, &apierrors.StatusError{ErrStatus: metav1.Status{
					Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: "NotAcceptable",
					Message: fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (*%s.%sList)", r.t.goPackage(), r.t.Kind),
				}}
			}
			enc.partial = true
			return enc, nil
		}
	}
	if r.t.kind.custom {
		r.enc.proto = strings.Contains(accept, mediaProto)
		return r.enc, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: "NotAcceptable",
			Message: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
		}}
	}
	return encoding{}, apiStatus(http.StatusNotAcceptable, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "+
		"application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch")
}

// goPackage names the server's internal package of the type in messages.
func (t *table) goPackage() string {
	switch {
	case t.kind.custom:
		return "unstructured"
	case t.Group == "":
		return "core"
	default:
		return strings.Split(t.Group, ".")[0]
	}
}

// fail answers err: an API status as it is, anything else as 500.
func (r *request) fail(err error) {
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		r.s.log.Error("request failed", "method", r.Method, "path", r.URL.Path, "err", err)
		status = apierrors.NewInternalError(err)
	}
	writeStatus(r.w, status, r.enc.proto)
}

func writeStatus(w http.ResponseWriter, err *apierrors.StatusError, proto bool) {
	st := &err.ErrStatus
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	body, encErr := encodeStatus(st, proto)
	if encErr != nil {
		panic(encErr) // a Status always encodes
	}
	writeBody(w, int(st.Code), body, proto)
}

func writeBody(w http.ResponseWriter, code int, body []byte, proto bool) {
	if proto {
		w.Header().Set("Content-Type", mediaProto)
	} else {
		w.Header().Set("Content-Type", mediaJSON)
		body = append(body[:len(body):len(body)], '\n')
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body)
}

// writeObject answers with one object.
func (r *request) writeObject(code int, v *version) error {
	body, err := r.t.kind.object(v, r.enc)
	if err != nil {
		return err
	}
	writeBody(r.w, code, body, r.enc.proto)
	return nil
}

func (r *request) get() error {
	r.s.mu.Lock()
	rev := r.s.rev
	v := r.t.current(r.t.key(r.namespace, r.name))
	r.s.mu.Unlock()
	if rv := r.URL.Query().Get("resourceVersion"); rv != "" {
		n, err := strconv.ParseUint(rv, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest(badRevision(rv, err))
		}
		if n > rev {
			return errTooLarge(n, rev)
		}
	}
	if v == nil {
		return apierrors.NewNotFound(r.t.groupResource(), r.name)
	}
	return r.writeObject(http.StatusOK, v)
}

func badRevision(rv string, err error) string {
	return fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q: %v", rv, err)
}

// errTooLarge is the answer to a read at a revision that does not exist yet.
// The real server gives it after waiting three seconds for the revision.
func errTooLarge(rv, current uint64) *apierrors.StatusError {
	err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", rv, current), 1)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{
		Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version",
	}}
	return err
}

func (s *Server) serveDiscovery(w *recorder, r *http.Request, p requestPath) {
	var answer any
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/readyz" || path == "/healthz" || path == "/livez":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok")
		return
	case path == "/version":
		answer = s.version()
	case strings.HasPrefix(path, "/openapi/v3/"):
		s.serveSchema(w, r)
		return
	case path == "/api":
		answer = s.coreVersions(r.Host)
	case path == "/apis":
		answer = s.groupList()
	case p.gv.Version != "" && s.servesGroupVersion(p.gv):
		answer = s.resourceList(p.gv)
	case strings.HasPrefix(path, "/apis/"):
		if g := s.group(strings.TrimPrefix(path, "/apis/")); g != nil {
			answer = g
		}
	}
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err) // discovery types always encode
	}
	writeBody(w, http.StatusOK, body, false)
}
