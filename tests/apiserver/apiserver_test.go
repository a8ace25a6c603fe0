package apiserver

import (
	"context"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func TestServer(t *testing.T) {
	began := time.Now()
	s := Start(t, Options{})
	t.Logf("started in %v", time.Since(began))
	for _, tc := range []struct {
		name string
		test func(*testing.T, *Server)
	}{
		{"a restart makes every resume too old", testRestart},
		{"a restored snapshot takes versions back", testRestore},
		{"requests are recorded before they are answered", testRequests},
		{"a user has the rights that were granted last", testGrant},
		{"a kubeconfig leads to the server", testKubeconfig},
		{"a stopped server refuses connections", testStopped},
	} {
		t.Run(tc.name, func(t *testing.T) { tc.test(t, s) })
	}
	dir, pid := s.dir, s.etcd.cmd.Process.Pid
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("files are left in %s", dir)
	}
	if syscall.Kill(pid, 0) == nil {
		t.Error("etcd has survived")
	}
}

func testRestart(t *testing.T, s *Server) {
	old := create(t, s, "before-restart")
	began := time.Now()
	if err := s.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("restarted in %v", time.Since(began))
	if _, err := get(t, s, "before-restart"); err != nil {
		t.Fatal(err)
	}
	// No config map has changed since, and yet:
	timeout := int64(10)
	opts := metav1.ListOptions{ResourceVersion: old.ResourceVersion, TimeoutSeconds: &timeout}
	w := untilServed(t, func() (watch.Interface, error) {
		return s.Client(t).CoreV1().ConfigMaps("").Watch(t.Context(), opts)
	})
	defer w.Stop()
	e := <-w.ResultChan()
	status, _ := e.Object.(*metav1.Status)
	if e.Type != watch.Error || status == nil || status.Code != http.StatusGone ||
		status.Reason != metav1.StatusReasonExpired {
		t.Fatalf("resume after a restart: got %v %v, want an ERROR event with 410", e.Type, e.Object)
	}
}

func testRestore(t *testing.T, s *Server) {
	kept := create(t, s, "kept")
	began := time.Now()
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshot in %v", time.Since(began))
	for range 20 {
		create(t, s, "")
	}
	lost := create(t, s, "lost")
	began = time.Now()
	if err := s.Restore(t.Context(), snapshot); err != nil {
		t.Fatal(err)
	}
	t.Logf("restored in %v", time.Since(began))
	if got, err := get(t, s, "kept"); err != nil || got.UID != kept.UID {
		t.Errorf("created before the snapshot: got %v, %v", got.UID, err)
	}
	if _, err := get(t, s, "lost"); !apierrors.IsNotFound(err) {
		t.Errorf("created after the snapshot: got %v, want not found", err)
	}
	list, err := s.Client(t).CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if version(t, list.ResourceVersion) >= version(t, lost.ResourceVersion) {
		t.Errorf("the server is at version %s, want one before %s", list.ResourceVersion, lost.ResourceVersion)
	}
}

func testRequests(t *testing.T, s *Server) {
	since := time.Now()
	cfg := s.Config()
	cfg.UserAgent = "harness/1"
	client := kubernetes.NewForConfigOrDie(cfg)
	list, err := client.CoreV1().Secrets("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.CoreV1().Secrets("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	all, err := s.Requests(since)
	if err != nil {
		t.Fatal(err)
	}
	got := all.UserAgent("harness/").Path("/api/v1/secrets")
	if len(got) != 2 || got[0].Verb != "list" || got[1].Verb != "watch" || got[1].User != Admin ||
		got[1].Stage != StageStarted {
		t.Errorf("got %+v, want a list and an open watch of %s", got, Admin)
	}
	if full := got.FullReads(); len(full) != 1 || full[0].Verb != "list" {
		t.Errorf("full reads: got %+v, want the list", full)
	}
	later, err := s.Requests(time.Now())
	if err != nil || len(later.UserAgent("harness/")) != 0 {
		t.Errorf("requests from now on: got %v, %v, want none", later, err)
	}
}

func testGrant(t *testing.T, s *Server) {
	secrets := kubernetes.NewForConfigOrDie(s.ConfigFor(Restricted)).CoreV1().Secrets("")
	list := func() error {
		_, err := secrets.List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(); !apierrors.IsForbidden(err) {
		t.Errorf("without rights: got %v, want forbidden", err)
	}
	rule := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list"}}
	if err := s.Grant(t.Context(), Restricted, rule); err != nil {
		t.Fatal(err)
	}
	if err := list(); err != nil {
		t.Errorf("with rights: %v", err)
	}
	if err := s.Grant(t.Context(), Restricted); err != nil {
		t.Fatal(err)
	}
	if err := list(); !apierrors.IsForbidden(err) {
		t.Errorf("with rights taken away: got %v, want forbidden", err)
	}
	_, err := kubernetes.NewForConfigOrDie(s.ConfigFor("nobody")).CoreV1().Secrets("").List(t.Context(),
		metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("unknown user: got %v, want unauthorized", err)
	}
}

func testKubeconfig(t *testing.T, s *Server) {
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kubernetes.NewForConfigOrDie(cfg).ServerVersion(); err != nil {
		t.Error(err)
	}
}

func testStopped(t *testing.T, s *Server) {
	s.StopAPIServer()
	if _, err := get(t, s, "kept"); err == nil {
		t.Error("a stopped server has answered")
	}
	if err := s.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := get(t, s, "kept"); err != nil {
		t.Errorf("started again: %v", err)
	}
}

func TestFullRead(t *testing.T) {
	for _, tc := range []struct {
		verb, query string
		want        bool
	}{
		{"list", "", true},
		{"list", "limit=500", true},
		{"list", "limit=500&continue=x", true},
		{"list", "limit=1", false},
		{"list", "fieldSelector=metadata.name%3Dnone&limit=1", false},
		{"list", "fieldSelector=metadata.name%3Dnone", false},
		{"list", "fieldSelector=spec.nodeName%3Da", true},
		{"watch", "watch=true", true},
		{"watch", "resourceVersion=0&watch=true", true},
		{"watch", "resourceVersion=7&watch=true", false},
		{"watch", "resourceVersion=7&sendInitialEvents=true&watch=true", true},
		{"get", "", false},
	} {
		r := Request{Verb: tc.verb, URI: "/api/v1/pods?" + tc.query}
		if got := r.FullRead(); got != tc.want {
			t.Errorf("%s %s: got %v, want %v", tc.verb, r.URI, got, tc.want)
		}
	}
}

// create creates a config map; "" means any name.
func create(t *testing.T, s *Server, name string) *corev1.ConfigMap {
	t.Helper()
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if name == "" {
		obj.GenerateName = "any-"
	}
	obj, err := s.Client(t).CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(t.Context(), obj,
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func get(t *testing.T, s *Server, name string) (*corev1.ConfigMap, error) {
	t.Helper()
	return s.Client(t).CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
}

func version(t *testing.T, rv string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(rv, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// untilServed repeats a request as long as the answer is 429, as it is while the server
// fills its cache.
func untilServed[T any](t *testing.T, request func() (T, error)) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := request()
		if err == nil {
			return got
		}
		if !apierrors.IsTooManyRequests(err) {
			t.Fatal(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatal(err)
		}
	}
}
