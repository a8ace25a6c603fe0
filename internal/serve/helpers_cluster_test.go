package serve

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// cluster is a server that keeps all requests for the test.
type cluster struct {
	*httptest.Server
	mu      sync.Mutex
	got     []received // but reviews
	reviews int
	down    bool
	expired bool               // this process's credentials get 401
	vain    int                // requests while it was down
	waits   func()             // is called by these
	hangs   func(token string) // is called by reviews of tokens
	system  string             // UID of the namespace kube-system; "" shows none
	tokens  map[string]string  // users, by token
	may     func(authorizationv1.SubjectAccessReviewSpec) bool
}

// received is a request that was passed on.
type received struct {
	what   string // method and path
	as     string // the credentials
	header http.Header
	body   string
}

const ownToken = "serving-process"

func newCluster(t testing.TB) *cluster { return newClusterOf(t, true) }

func newClusterOf(t testing.TB, http2 bool) *cluster {
	t.Helper()
	c := &cluster{tokens: map[string]string{"token-of-ann": "ann"}}
	c.Server = httptest.NewUnstartedServer(c)
	c.EnableHTTP2 = http2
	c.Config.ErrorLog = log.New(io.Discard, "", 0)
	c.StartTLS()
	t.Cleanup(c.Close)
	return c
}

func (c *cluster) config() *rest.Config {
	return &rest.Config{Host: c.URL, BearerToken: ownToken, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
			Bytes: c.Certificate().Raw})}}
}

// link leads to the cluster. Unless the test moves a clock, no time passes on it: no request
// counts as one that waited in vain because the machine was busy.
func (c *cluster) link(t testing.TB, o LinkOptions) *Link {
	t.Helper()
	if o.Clock == nil {
		o.Clock = fakeClock()
	}
	l, err := NewLink(c.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func (c *cluster) setDown(down bool) {
	c.mu.Lock()
	c.down = down
	c.mu.Unlock()
	if down {
		c.CloseClientConnections()
	}
}

func (c *cluster) setExpired(expired bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.expired = expired
}

// becomes puts another cluster at the same address.
func (c *cluster) becomes(uid string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.system = uid
}

// is returns the cluster that a file knows, none if uid is "".
func is(uid string) func(context.Context) []string {
	return func(context.Context) []string {
		return slices.DeleteFunc([]string{uid}, func(uid string) bool { return uid == "" })
	}
}

// last is the last request that was passed on.
func (c *cluster) last() received {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.got) == 0 {
		return received{}
	}
	return c.got[len(c.got)-1]
}

func (c *cluster) counts() (passed, reviews int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got), c.reviews
}

// ServeHTTP implements http.Handler.
func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	down, may, refused := c.down, c.may, c.expired && bearer(r) == ownToken
	user, known := c.tokens[bearer(r)]
	c.mu.Unlock()
	if down {
		c.mu.Lock()
		c.vain++
		waits := c.waits
		c.mu.Unlock()
		if waits != nil {
			waits()
		}
		panic(http.ErrAbortHandler)
	}
	if refused {
		kubeapi.WriteStatus(w, apierrors.NewUnauthorized("Unauthorized"))
		return
	}
	if r.URL.Path == "/api/v1/namespaces/kube-system" {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.system == "" {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = fmt.Fprintf(w, `{"metadata":{"uid":%q}}`, c.system) // the client left
		return
	}
	switch r.URL.Path {
	case "/apis/authentication.k8s.io/v1/tokenreviews":
		var review authenticationv1.TokenReview
		c.review(w, r, &review, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.hangs != nil {
				c.hangs(review.Spec.Token)
			}
			if user, ok := c.tokens[review.Spec.Token]; ok {
				review.Status = authenticationv1.TokenReviewStatus{Authenticated: true,
					User: authenticationv1.UserInfo{Username: user, Groups: []string{"staff"}}}
			}
		})
		return
	case "/apis/authorization.k8s.io/v1/subjectaccessreviews":
		var review authorizationv1.SubjectAccessReview
		c.review(w, r, &review, func() { review.Status.Allowed = may == nil || may(review.Spec) })
		return
	}
	as := "nobody"
	switch {
	case bearer(r) == ownToken && r.Header.Get("Impersonate-User") != "":
		as = "own as " + r.Header.Get("Impersonate-User") + " " + strings.Join(r.Header.Values("Impersonate-Group"),
			",")
	case bearer(r) == ownToken:
		as = "own"
	case known:
		as = user
	}
	if r.Header.Get("Upgrade") != "" {
		c.note(received{r.Method + " " + r.URL.Path, as, r.Header, ""})
		echo(w, r)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	c.note(received{r.Method + " " + r.URL.Path, as, r.Header, string(body)})
	c.answer(w, r)
}

func (c *cluster) note(r received) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got = append(c.got, r)
}

func (c *cluster) review(w http.ResponseWriter, r *http.Request, review runtime.Object, decide func()) {
	c.mu.Lock()
	c.reviews++
	c.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, err = scheme.Codecs.UniversalDeserializer().Decode(body, nil, review)
	}
	if bearer(r) != ownToken || err != nil {
		http.Error(w, "a bad review", http.StatusBadRequest)
		return
	}
	decide()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(review) // the client left
}

// answer is the cluster's answer to requests that are passed on.
func (c *cluster) answer(w http.ResponseWriter, r *http.Request) {
	pods := metav1.APIResource{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: []string{"get", "create"}}
	maps := metav1.APIResource{Name: "configmaps", Kind: "ConfigMap", Namespaced: true,
		Verbs: []string{"get", "create"}}
	deployments := metav1.APIResource{Name: "deployments", Kind: "Deployment", Namespaced: true, Verbs: []string{"get"}}
	apps := metav1.GroupVersionForDiscovery{GroupVersion: "apps/v1", Version: "v1"}
	answers := map[string]any{
		"/version": map[string]string{"gitVersion": "v1.36.0"},
		"/api":     metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}},
		"/apis": metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList"},
			Groups: []metav1.APIGroup{{Name: "apps", Versions: []metav1.GroupVersionForDiscovery{apps},
				PreferredVersion: apps}}},
		"/api/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
			GroupVersion: "v1", APIResources: []metav1.APIResource{pods, maps}},
		"/apis/apps/v1": metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"},
			GroupVersion: "apps/v1", APIResources: []metav1.APIResource{deployments}},
	}
	media := "application/json"
	if kubeapi.AcceptsAggregated(r) {
		media = kubeapi.MediaDiscovery
		of := func(group string, r metav1.APIResource) apidiscoveryv2.APIGroupDiscoveryList {
			return apidiscoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList",
				APIVersion: "apidiscovery.k8s.io/v2"}, Items: []apidiscoveryv2.APIGroupDiscovery{{
				ObjectMeta: metav1.ObjectMeta{Name: group},
				Versions: []apidiscoveryv2.APIVersionDiscovery{{Version: "v1",
					Resources: []apidiscoveryv2.APIResourceDiscovery{{
						Resource: r.Name, ResponseKind: &metav1.GroupVersionKind{Group: group, Version: "v1",
							Kind: r.Kind}, Scope: apidiscoveryv2.ScopeNamespace, Verbs: r.Verbs}}}}}}}
		}
		answers["/api"], answers["/apis"] = of("", pods), of("apps", deployments)
	}
	switch a, ok := answers[r.URL.Path]; {
	case ok:
		w.Header().Set("Content-Type", media)
		_ = json.NewEncoder(w).Encode(a) // the client left
	case strings.HasSuffix(r.URL.Path, "/log"):
		_, _ = io.WriteString(w, "one line\n")    // the client left
		_ = http.NewResponseController(w).Flush() // likewise
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"kind":"Answer","path":%q}`, r.URL.Path) // the client left
	}
}

// echo switches protocols and sends back what comes.
func echo(w http.ResponseWriter, r *http.Request) {
	conn, buf := upgraded(w, r)
	defer conn.Close()
	_, _ = io.Copy(conn, buf) // until the client ends
}

// linkTo leads to a server that the test has made itself, by a clock as that of [cluster.link].
func linkTo(t testing.TB, server *httptest.Server, o LinkOptions) *Link {
	t.Helper()
	if o.Clock == nil {
		o.Clock = fakeClock()
	}
	cfg := &rest.Config{Host: server.URL, BearerToken: ownToken, QPS: -1}
	if cert := server.Certificate(); cert != nil {
		cfg.CAData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	l, err := NewLink(cfg, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
