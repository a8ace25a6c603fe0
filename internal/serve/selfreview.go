package serve

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"path"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

const selfReviewPath = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

// largestReview bounds the body of a question about the caller's rights, which is in memory.
const largestReview = 64 << 10

// selfReview answers whether the caller may do something. The server decides. While it
// cannot, callers may read the objects of the file, since those reads would be answered
// here: k9s and kubectl auth can-i ask before they read.
func (s *Server) selfReview(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestReview))
	if err != nil {
		kubeapi.WriteStatus(w, apierrors.NewRequestEntityTooLargeError(err.Error()))
		return
	}
	why := "there is no link to the server"
	if s.link != nil {
		asking, began := r.Clone(r.Context()), s.link.reviews.clock.Now()
		asking.Body = io.NopCloser(bytes.NewReader(body))
		theirs := ask(s.onward, asking, cmp.Or(r.Header.Get("Accept"), kubeapi.MediaJSON))
		if theirs.code < http.StatusInternalServerError {
			theirs.send(w)
			return
		}
		why = cmp.Or(statusText(theirs.body.Bytes()), "the server's answer broke off")
		if theirs.late {
			s.link.reviews.waited(began, errors.New(why)) // the body was there: the server was slow
		}
	}
	obj, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	review, ok := obj.(*authorizationv1.SelfSubjectAccessReview)
	if err != nil || !ok {
		kubeapi.WriteStatus(w, apierrors.NewBadRequest("the body is no SelfSubjectAccessReview of "+
			"authorization.k8s.io/v1"))
		return
	}
	review.Status = authorizationv1.SubjectAccessReviewStatus{Reason: "by what the file has: " + why}
	if a := review.Spec.ResourceAttributes; a != nil {
		review.Status.Allowed = s.mayRead(r, a)
	}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	out, err := json.Marshal(review)
	if err != nil {
		panic(err) // it was read
	}
	kubeapi.WriteJSON(w, http.StatusCreated, out)
}

// statusText is the message of a status, or the text itself.
func statusText(body []byte) string {
	var st metav1.Status
	if err := json.Unmarshal(body, &st); err != nil || st.Message == "" {
		return string(body)
	}
	return st.Message
}

// mayRead says whether the caller would get an answer from the file.
func (s *Server) mayRead(r *http.Request, a *authorizationv1.ResourceAttributes) bool {
	if a.Verb != "get" && a.Verb != "list" && a.Verb != "watch" || a.Subresource != "" && a.Subresource != "status" {
		return false
	}
	version := a.Version
	if version == "" || version == "*" {
		version = s.versionOf(r, a.Group)
	}
	to := "/apis/" + a.Group + "/" + version
	if a.Group == "" {
		to = "/api/" + version
	}
	if a.Namespace != "" && !(a.Group == "" && a.Resource == "namespaces") {
		to = path.Join(to, "namespaces", a.Namespace)
	}
	to = path.Join(to, a.Resource)
	if c := callerOf(r); !c.same {
		p, q := kubeapi.ParsePath(to), url.Values{}
		p.Subresource = a.Subresource
		switch {
		case a.Verb == "get": // without a name it is for all objects, as a list
			p.Name = a.Name
		case a.Name != "":
			q.Set("fieldSelector", "metadata.name="+fields.EscapeValue(a.Name))
		}
		if a.Verb == "watch" {
			q.Set("watch", "1")
		}
		if err := s.link.authorize(reading(r, to, q.Encode()), c, p); err != nil {
			return false
		}
	}
	// waits for nothing
	got := s.fromFile(reading(r, to, "limit=1&resourceVersion=1&resourceVersionMatch=NotOlderThan"))
	// it has not been listed yet
	return got.code == http.StatusOK || got.code == http.StatusTooManyRequests
}

// versionOf is the version of a group that the file prefers.
func (s *Server) versionOf(r *http.Request, group string) string {
	var g metav1.APIGroup
	if group == "" || json.Unmarshal(s.fromFile(reading(r, "/apis/"+group, "")).body.Bytes(), &g) != nil {
		return "v1"
	}
	return g.PreferredVersion.Version
}

// reading returns a read in place of a request.
func reading(r *http.Request, path, query string) *http.Request {
	r = r.Clone(r.Context())
	r.Method, r.Body, r.ContentLength, r.Header = http.MethodGet, http.NoBody, 0, http.Header{}
	r.URL = &url.URL{Path: path, RawQuery: query}
	return r
}

func (s *Server) fromFile(r *http.Request) *answer {
	return ask(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.file.ServeFile(w, r, nil)
	}), r, kubeapi.MediaJSON)
}
