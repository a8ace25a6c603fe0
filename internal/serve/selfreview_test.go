package serve

import (
	"crypto/x509/pkix"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// mayI is the body of a question about oneself.
func mayI(t *testing.T, verb, resource, namespace string) string {
	t.Helper()
	return mayIn(t, kubeapi.MediaJSON, verb, resource, namespace)
}

// mayIn is mayI in a form.
func mayIn(t *testing.T, media, verb, resource, namespace string) string {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), media)
	if !ok {
		t.Fatal(media)
	}
	parts := append(strings.Split(resource, "/"), "", "") // group, resource, name, subresource
	b, err := runtime.Encode(info.Serializer, &authorizationv1.SelfSubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SelfSubjectAccessReview", APIVersion: "authorization.k8s.io/v1"},
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: verb, Group: parts[0], Resource: parts[1], Name: parts[2], Subresource: parts[3],
			Namespace: namespace}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestSilentSelfReview: if a server has stopped answering, it is waited for once, and not
// for long.
func TestSilentSelfReview(t *testing.T) {
	c := newCluster(t)
	clock := fakeClock()
	s := New(Options{File: podsOfK9s(t), Link: c.link(t, LinkOptions{Clock: clock})})
	c.setDown(true)
	ends := make(chan struct{})
	defer close(ends)
	vain := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.vain
	}
	for i := range 3 {
		ctx := expiring{t.Context(), make(chan struct{})} // the first client is gone then
		c.mu.Lock()
		c.waits = func() { clock.Step(patience); close(ctx.over); <-ends }
		c.mu.Unlock()
		r := httptest.NewRequestWithContext(ctx, "POST", selfReviewPath,
			strings.NewReader(mayI(t, "list", "/pods", "a")))
		w := httptest.NewRecorder()
		s.selfReview(w, withCaller(r, &caller{same: true, waiting: newPlaces(100)}))
		if w.Code != 201 || strings.Contains(w.Body.String(), `"allowed":true`) != (i > 0) || vain() != 1 {
			t.Errorf("%d %s, %d requests", w.Code, w.Body, vain())
		}
	}
}

// TestSelfReviewBrokenOff: if the link breaks in the middle of the server's answer, the
// file answers.
func TestSelfReviewBrokenOff(t *testing.T) {
	breaks := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write([]byte(`{"kind":`))        // then the connection ends
		_ = http.NewResponseController(w).Flush() // likewise
		panic(http.ErrAbortHandler)
	}))
	defer breaks.Close()
	s := start(t, Options{File: podsOfK9s(t), Link: linkTo(t, breaks, LinkOptions{})})
	r, err := http.NewRequestWithContext(t.Context(), "POST", local+selfReviewPath,
		strings.NewReader(mayI(t, "list", "/pods", "a")))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := s.socket.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 201 ||
		!strings.Contains(string(body), `"allowed":true`) {
		t.Errorf("%s %s %v", resp.Status, body, err)
	}
}

// TestSelfReviewOfOthers: offline, other users have the rights that the server has
// granted them.
func TestSelfReviewOfOthers(t *testing.T) {
	c := newCluster(t)
	ours := newAuthority(t)
	s := start(t, Options{File: podsOfK9s(t), Link: c.link(t, LinkOptions{Offline: time.Hour})})
	r := s.remote(ours)
	bob := r.client(ours, pkix.Name{CommonName: "bob"})
	if a := get(t, bob, r.addr+"/api/v1/namespaces/a/pods"); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	if a := get(t, bob, r.addr+"/api/v1/namespaces/a/pods/q"); a.code != 404 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	const named = "/api/v1/namespaces/a/pods?fieldSelector=metadata.name%3Dr"
	if a := get(t, bob, r.addr+named); a.code != 200 {
		t.Fatalf("%d %s", a.code, a.body)
	}
	c.setDown(true)
	for _, tc := range []struct {
		verb, resource string
		may            bool
	}{
		{"list", "/pods", true}, {"watch", "/pods", false}, {"get", "/pods", true},
		{"get", "/pods/q", true}, {"list", "/pods/q", false}, {"watch", "/pods/q", false},
		{"get", "/pods/q/status", false},
		{"list", "/pods/r", true}, {"get", "/pods/r", false},
	} {
		a := send(t, bob, "POST", r.addr+selfReviewPath, strings.NewReader(mayI(t, tc.verb, tc.resource, "a")),
			"Content-Type", "application/json")
		if !a.has(201, fmt.Sprintf(`"allowed":%t`, tc.may)) {
			t.Errorf("%s %s: %d %s", tc.verb, tc.resource, a.code, a.body)
		}
	}
}
