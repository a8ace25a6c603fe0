package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/utils/clock"
)

// Media types of answers.
const (
	MediaJSON  = "application/json"
	MediaProto = "application/vnd.kubernetes.protobuf"
)

// Handler is the API over a Storage. Its fields do not change while it serves.
type Handler struct {
	Storage Storage
	// Clock drives timeouts and bookmarks of watches.
	Clock clock.WithTicker
	// Version is the answer to /version.
	Version func() apiversion.Info
	// Failed is called with each error that is answered as 500, or that breaks a watch.
	Failed func(r *http.Request, err error)
	// NoBookmarks: watches send no bookmarks, except at the end of initial events.
	NoBookmarks bool
	// Aggregated: /api and /apis are answered in one document, for clients that accept
	// it.
	Aggregated bool
	// Write answers the verbs create, update, patch, delete and deletecollection. nil
	// means that the API is read-only.
	Write func(r *Request, verb string) error
	// Otherwise answers requests for objects that the Storage does not have
	// ([ErrNotHere]), before anything of an answer was sent. nil answers them with the
	// error.
	Otherwise http.Handler
}

// Request is one call on a resource.
type Request struct {
	*http.Request
	Path
	Type *Type
	h    *Handler
	w    http.ResponseWriter
	enc  encoding
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p := ParsePath(r.URL.Path)
	if p.Resource == "" {
		h.serveDiscovery(w, r, p)
		return
	}
	req := &Request{Request: r, Path: p, h: h, w: w}
	verb := p.Verb(r.Method, r.URL.Query())
	if err := checkTimeout(r, p, verb); err != nil {
		req.fail(err)
		return
	}
	switch err := req.serve(verb); {
	case err == nil:
	case h.Otherwise != nil && errors.Is(err, ErrNotHere):
		h.Otherwise.ServeHTTP(w, r)
	default:
		req.fail(err)
	}
}

func (h *Handler) typeOf(gv schema.GroupVersion, plural string) *Type {
	for _, t := range h.Storage.Types() {
		if t.GroupVersion() == gv && t.Plural == plural {
			return t
		}
	}
	return nil
}

func (r *Request) serve(verb string) (err error) {
	r.Type = r.h.typeOf(r.GroupVersion, r.Resource)
	if r.Type == nil {
		if r.GroupVersion == (schema.GroupVersion{Version: "v1"}) && r.Resource == "namespaces" && r.Name != "" {
			return NotHere(errNoNamespaces(r.Name))
		}
		if !r.h.isBuiltIn(r.GroupVersion) && r.h.Otherwise == nil {
			http.NotFound(r.w, r.Request)
			return nil
		}
		return NotHere(errNoResource())
	}
	if r.Subresource != "" && !(r.Subresource == "status" && r.Name != "" && r.Type.hasStatus()) || r.Rest != "" {
		return NotHere(errNoResource())
	}
	if !r.Type.Namespaced && r.Namespace != "" {
		return errNoResource()
	}
	if r.Namespace == "." || r.Namespace == ".." {
		return errNoKey("/" + r.Type.Plural + "/" + r.Namespace + "/" + r.Name)
	}
	everywhere := r.Type.Namespaced && r.Namespace == ""
	if everywhere && r.Name != "" {
		return errNoResource()
	}
	reads := verb == "get" || verb == "list" || verb == "watch"
	if reads && r.Method != http.MethodGet && (r.Method != http.MethodHead || !r.Type.Custom) {
		return errMethod() // OPTIONS, unknown methods, and HEAD, as at a server
	}
	needsName := verb == "get" || verb == "update" || verb == "patch" || verb == "delete"
	if needsName != (r.Name != "") || everywhere && verb != "list" && verb != "watch" || !reads && r.h.Write == nil {
		return errMethod()
	}
	if r.enc, err = r.negotiate(verb); err != nil {
		return NotHere(err) // in this form
	}
	switch verb {
	case "get":
		return r.get()
	case "list":
		return r.list()
	case "watch":
		return r.watch()
	}
	return r.h.Write(r, verb)
}

// checkTimeout refuses a time that cannot be parsed, as a server does. Otherwise the client
// itself ends the request. A watch has timeoutSeconds.
func checkTimeout(r *http.Request, p Path, verb string) error {
	if verb == "watch" || p.Subresource != "" && p.Subresource != "status" {
		return nil
	}
	text := r.URL.Query().Get("timeout")
	if text == "" {
		return nil
	}
	if _, err := time.ParseDuration(text); err != nil {
		return apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err))
	}
	return nil
}

func errMethod() *apierrors.StatusError {
	return apiStatus(http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed,
		"the server does not allow this method on the requested resource")
}

func errNoResource() error {
	return apiStatus(http.StatusNotFound, metav1.StatusReasonNotFound,
		"the server could not find the requested resource")
}

// errNoNamespaces does not say that a namespace is missing. kubectl asks for the namespace
// of an object that is not found, and reports that instead if there is no such namespace.
func errNoNamespaces(name string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "namespaces"}, name,
		errors.New("namespaces are not kept here"))
}

func apiStatus(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
		Details: &metav1.StatusDetails{},
	}}
}

// fail answers with err: an API status as it is, anything else as 500. If the client has left
// or the server ends, it breaks the connection off.
func (r *Request) fail(err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	var status *apierrors.StatusError
	if !errors.As(err, &status) {
		r.h.failed(r.Request, err)
		status = apierrors.NewInternalError(err)
	}
	if d := status.ErrStatus.Details; d != nil && d.RetryAfterSeconds > 0 && errors.Is(err, ErrNotHere) {
		retryAt(r.w, r.h.Clock.Now().Add(time.Duration(d.RetryAfterSeconds)*time.Second))
	}
	writeStatus(r.w, status, r.enc)
}

// retryAt sets Retry-After as a date. Given a number of seconds, client-go sends the
// request again by itself, ten times, and only then reports the failure. It leaves a date
// to its user.
func retryAt(w http.ResponseWriter, at time.Time) {
	w.Header().Set("Retry-After", at.Add(time.Second-1).UTC().Format(http.TimeFormat))
}

// WriteStatusUntil answers in JSON with a failure that lasts until a moment. The client
// learns the moment, and does not wait for it.
func WriteStatusUntil(w http.ResponseWriter, err *apierrors.StatusError, until time.Time) {
	retryAt(w, until)
	WriteStatus(w, err)
}

func (h *Handler) failed(r *http.Request, err error) {
	if h.Failed != nil {
		h.Failed(r, err)
	}
}

// WriteStatus answers with a failure, in JSON.
func WriteStatus(w http.ResponseWriter, err *apierrors.StatusError) { writeStatus(w, err, encoding{}) }

func writeStatus(w http.ResponseWriter, err *apierrors.StatusError, enc encoding) {
	st := &err.ErrStatus
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	body, encErr := encodeStatus(st, enc)
	if encErr != nil {
		panic(encErr) // a Status always encodes
	}
	writeBody(w, int(st.Code), body, enc)
}

// WriteJSON answers with a JSON document.
func WriteJSON(w http.ResponseWriter, code int, body []byte) { writeBody(w, code, body, encoding{}) }

func writeBody(w http.ResponseWriter, code int, body []byte, enc encoding) {
	media := enc.media()
	if media == MediaJSON {
		body = append(body[:len(body):len(body)], '\n')
	}
	writeMedia(w, code, body, media)
}

func writeMedia(w http.ResponseWriter, code int, body []byte, media string) {
	w.Header().Set("Content-Type", media)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(code)
	_, _ = w.Write(body) // the client left
}

// WriteObject answers with one object.
func (r *Request) WriteObject(code int, o *Object) error {
	body, err := r.Type.object(o, r.enc)
	if err != nil {
		return err
	}
	writeBody(r.w, code, body, r.enc)
	return nil
}

// WriteSuccess answers with a status that says that the request is done.
func (r *Request) WriteSuccess(details *metav1.StatusDetails) error {
	body, err := encodeStatus(&metav1.Status{Status: metav1.StatusSuccess, Details: details}, r.enc)
	if err != nil {
		return err
	}
	writeBody(r.w, http.StatusOK, body, r.enc)
	return nil
}

func (r *Request) get() error {
	if bad := content.IsPathSegmentName(r.Name); len(bad) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("Name parameter invalid: %q: %s", r.Name, strings.Join(bad, ";")))
	}
	var least uint64
	if rv := r.URL.Query().Get("resourceVersion"); rv != "" {
		var err error
		if least, err = strconv.ParseUint(rv, 10, 64); err != nil {
			return errNoVersion(rv, err)
		}
	}
	o, err := r.h.Storage.Get(r.Context(), r.Type, r.Namespace, r.Name, least)
	var large *TooLargeError
	switch {
	case errors.As(err, &large):
		return errTooLarge(large)
	case err != nil:
		return err
	case o == nil:
		return apierrors.NewNotFound(r.Type.GroupResource(), r.Name)
	}
	return r.WriteObject(http.StatusOK, o)
}

// errNoVersion is a server's answer to a get or watch with a resourceVersion that is none.
func errNoVersion(rv string, err error) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: fmt.Sprintf("resourceVersion: Invalid value: %q: %v", rv, err),
	}}
}

// errNoKey is a server's answer to a namespace that cannot be a part of a key.
func errNoKey(key string) *apierrors.StatusError {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
		Message: fmt.Sprintf("invalid key: %q", key),
	}}
}

// parseVersion parses the resourceVersion of a list.
func parseVersion(rv string) (uint64, error) {
	n, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: resourceVersion: Invalid "+
			"value: %q: %v", rv, err))
	}
	return n, nil
}
