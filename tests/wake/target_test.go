package wake

import (
	"context"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/tests/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// target is a server that programs are killed under.
type target interface {
	Config() *rest.Config
	Kubeconfig(t *testing.T) string
	// FullReads returns the requests of programs under test since then that
	// transferred state rather than changes, but for lists that only prove that
	// nothing was missed.
	FullReads(t *testing.T, since time.Time) (all []string)
	// ClusterReads counts the requests for the cluster's identity.
	ClusterReads(t *testing.T, since time.Time) int
	Restart(context.Context) error
	// Snapshot returns a function that takes the server back to its present state.
	Snapshot(context.Context) (func(context.Context) error, error)
	// Disturb breaks connections, if the target can do so.
	Disturb()
}

type simulator struct{ *kubesim.Server }

func newSimulator(t *testing.T) target {
	s := kubesim.New(kubesim.Options{HistorySize: 100_000})
	if _, err := s.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return simulator{s}
}

func (s simulator) Config() *rest.Config { return s.RESTConfig() }

func (s simulator) Kubeconfig(t *testing.T) string {
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: s.URL()}
	c.Contexts["sim"] = &api.Context{Cluster: "sim"}
	c.CurrentContext = "sim"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func (s simulator) FullReads(_ *testing.T, since time.Time) (all []string) {
	p := proofs{} // of all time: a list may have begun before since
	for _, r := range s.Requests() {
		if r.FullRead() && isOurs(r.UserAgent) && !p.has(r.Verb, r.Path, r.Query, r.Metadata) &&
			!r.Start.Before(since) {
			all = append(all, r.Verb+" "+r.Path+"?"+r.Query.Encode())
		}
	}
	return all
}

// proofs are the paths whose last list proves that nothing was missed: it asks for no
// older state than a version. Its pages bring metadata, which is compared. Relists ask
// for the newest state.
type proofs map[string]bool

// firstPage is the first page of a relist.
const firstPage = 250

// has says whether the request is of such a list. metadata is false if it brings objects; a
// real server's log does not say.
func (p proofs) has(verb, path string, q url.Values, metadata bool) bool {
	if verb != "list" {
		return false
	}
	if q.Get("continue") == "" {
		n, err := strconv.Atoi(q.Get("limit"))
		p[path] = q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchNotOlderThan)
		// a list of metadata that asks for the version; further pages bring metadata, too
		p["asks "+path] = metadata && err == nil && n != firstPage && q.Get("resourceVersion") == ""
	}
	return p[path] || metadata && p["asks "+path]
}

func (s simulator) ClusterReads(_ *testing.T, since time.Time) (n int) {
	for _, r := range s.Requests() {
		if r.Verb == "get" && strings.HasSuffix(r.Path, "/kube-system") && !r.Start.Before(since) {
			n++
		}
	}
	return n
}

func (s simulator) Restart(context.Context) error {
	return s.Server.Restart(kubesim.RestartOptions{Initializing: 2})
}

func (s simulator) Snapshot(context.Context) (func(context.Context) error, error) {
	rv := s.Revision()
	return func(context.Context) error { return s.Rewind(rv) }, nil
}

func (s simulator) Disturb() { s.DropConnections() }

type realServer struct{ *apiserver.Server }

func newRealServer(t *testing.T) target {
	s := apiserver.Start(t, apiserver.Options{})
	if err := s.InstallWidgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	return realServer{s}
}

func (s realServer) Kubeconfig(t *testing.T) string { return s.Server.Kubeconfig(t) }

func (s realServer) FullReads(t *testing.T, since time.Time) (all []string) {
	t.Helper()
	requests, err := s.Requests(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	p := proofs{} // of all time: a list may have begun before since
	for _, r := range requests.UserAgent("kubewake/").FullReads() {
		u, err := url.Parse(r.URI)
		if err != nil {
			t.Fatal(err)
		}
		if !p.has(r.Verb, u.Path, u.Query(), true) && !r.Time.Before(since.Truncate(time.Microsecond)) {
			all = append(all, r.Verb+" "+r.URI)
		}
	}
	return all
}

func (s realServer) ClusterReads(t *testing.T, since time.Time) (n int) {
	t.Helper()
	requests, err := s.Requests(since)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range requests.UserAgent("kubewake/") {
		if r.Verb == "get" && strings.HasSuffix(r.URI, "/kube-system") {
			n++
		}
	}
	return n
}

func (s realServer) Restart(ctx context.Context) error { return s.RestartAPIServer(ctx) }

func (s realServer) Snapshot(ctx context.Context) (func(context.Context) error, error) {
	dir, err := s.Server.Snapshot(ctx)
	return func(ctx context.Context) error { return s.Restore(ctx, dir) }, err
}

func (s realServer) Disturb() {}

func isOurs(userAgent string) bool { return len(userAgent) >= 9 && userAgent[:9] == "kubewake/" }

// TestFullReadsSince: the last pages of a list count as its first page does, also if only
// they were asked for since then.
func TestFullReadsSince(t *testing.T) {
	srv := newSimulator(t)
	newWriter(t, srv.Config(), 1).fill(20)
	cfg := srv.Config()
	cfg.UserAgent = "kubewake/test"
	client := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("")
	for _, c := range []struct {
		first metav1.ListOptions
		want  int // full reads among further pages
	}{
		{metav1.ListOptions{Limit: 2, ResourceVersion: "1",
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan}, 0},
		{metav1.ListOptions{Limit: 2}, 1},
	} {
		first, err := client.List(t.Context(), c.first)
		if err != nil {
			t.Fatal(err)
		}
		since := time.Now()
		if _, err := client.List(t.Context(), metav1.ListOptions{Limit: 10, Continue: first.Continue}); err != nil {
			t.Fatal(err)
		}
		if reads := srv.FullReads(t, since); len(reads) != c.want {
			t.Errorf("after %+v: %v", c.first, reads)
		}
	}
}
