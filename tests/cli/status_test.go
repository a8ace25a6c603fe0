package cli

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// cluster is a simulated cluster, and a kubeconfig for it.
func cluster(t *testing.T) (sim *kubesim.Server, kubeconfig string) {
	t.Helper()
	sim = kubesim.New(kubesim.Options{Resources: resources()})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	if err := fill(sim); err != nil {
		t.Fatal(err)
	}
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: sim.URL()}
	c.Contexts["sim"] = &api.Context{Cluster: "sim"}
	c.CurrentContext = "sim"
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, kubeconfig); err != nil {
		t.Fatal(err)
	}
	return sim, kubeconfig
}

func status(t *testing.T, path string) string {
	t.Helper()
	out, err := exec.Command(kubewake, "status", "--db", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// serving is a mirror of pods and config maps with --http, until the test ends.
func serving(t *testing.T, path, kubeconfig string) (url string, log *buffer) {
	t.Helper()
	addr := apiserver.FreeAddress(t)
	cmd := exec.Command(kubewake, "mirror", "pods", "configmaps", "-A", "--db", path, "--kubeconfig", kubeconfig,
		"--http", addr)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(path))
	log = &buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, log.String())
		}
	})
	return "http://" + addr, log
}

// TestStatusOfHandlers: status says how many keys a durable handler has not acknowledged, and
// for how long.
func TestStatusOfHandlers(t *testing.T) {
	sim, _ := cluster(t)
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.RESTConfig()
	reflector.WrapConfig(cfg)
	lw := cache.NewListWatchFromClient(kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient(), "pods", "",
		fields.Everything())
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.Pod{}, informer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	told := make(chan informer.Event, 100)
	reg, err := inf.AddDurableHandler("audit",
		informer.DurableHandlerFunc(func(_ context.Context, e informer.Event) error {
			if e.Reset || e.Initial {
				return nil
			}
			told <- e
			return informer.ErrAckLater // and it never does
		}), informer.DurableOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); inf.RunWithContext(ctx) }()
	if !cache.WaitForCacheSync(ctx.Done(), reg.HasSynced) {
		t.Fatal("not synced")
	}
	for _, label := range []string{"1", "2", "3"} {
		if err := sim.Update(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "blog-1",
			Labels: map[string]string{"n": label}}}); err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(time.Minute)
	for label := ""; label != "3"; {
		select {
		case e := <-told:
			label = e.Object.(*corev1.Pod).Labels["n"]
		case <-deadline:
			t.Fatalf("told no change after %q", label)
		}
	}
	cancel()
	<-ended
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	got := status(t, path)
	line := regexp.MustCompile(`(?m)^audit +pods/v1 +1 +(\d+)s +0 +[1-9]\d* +pending +\S+ ago$`).FindStringSubmatch(got)
	if line == nil {
		t.Fatal(got)
	}
	// The key grows older, even while nothing happens.
	deadline = time.After(time.Minute)
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		if again := regexp.MustCompile(`(?m)^audit +pods/v1 +1 +(\d+)s`).FindStringSubmatch(status(t,
			path)); again != nil && again[1] != line[1] {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("it stays %ss old", line[1])
		}
	}
}

// TestStatusOfMismatches: unused contents, and contents that were indexed again, are in
// metrics, in /status and in kubewake status, with the reason.
func TestStatusOfMismatches(t *testing.T) {
	sim, kubeconfig := cluster(t)
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Namespace: "web", Name: "c", UID: "u", ResourceVersion: "1"}
	for resource, obj := range map[string]runtime.Object{"pods": &corev1.Pod{ObjectMeta: meta},
		"configmaps": &corev1.ConfigMap{ObjectMeta: meta}} {
		// All are indexed by another function, and pods have been transformed.
		s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: resource,
			Form: boltstore.FormTyped}, Example: obj,
			Indexers: cache.Indexers{cache.NamespaceIndex: func(any) ([]string, error) {
				return []string{"other"}, nil
			}}})
		if err != nil {
			t.Fatal(err)
		}
		if resource == "pods" {
			s.SetTransformVersion("another program's")
		}
		r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
			OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Page([]runtime.Object{obj}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Commit("2", time.Now()); err != nil {
			t.Fatal(err)
		}
		s.Release()
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	url, log := serving(t, path, kubeconfig)
	await(t, url+"/metrics", 200, `kubewake_source_reindexed_total{index="namespace",source="configmaps/v1"} 1`, log)
	await(t, url+"/metrics", 200, `kubewake_source_outdated{reason="the transform has changed",source="pods/v1"} 1`,
		log)
	await(t, url+"/metrics", 200, `kubewake_set_aside_files{reason="damaged"} 0`, log)
	await(t, url+"/metrics", 200, `kubewake_files_set_aside_total 0`, log)
	await(t, url+"/status", 200, `"outdated": "the transform has changed"`, log)
	if got := status(t, path); !strings.Contains(got, "pods/v1 needs a relist: the transform has changed\n") ||
		strings.Contains(got, "configmaps/v1 needs a relist") || strings.Contains(got, "set aside") {
		t.Error(got)
	}
	if err := sim.RefuseConnections(false); err != nil {
		t.Fatal(err)
	}
	await(t, url+"/readyz", 200, "ok", log)
	if got := status(t, path); strings.Contains(got, "needs a relist") {
		t.Error(got)
	}
}

// TestStatusOfDamage: a file that was set aside is there, too, with its salvaged part.
func TestStatusOfDamage(t *testing.T) {
	sim, kubeconfig := cluster(t)
	dir := t.TempDir()
	whole := filepath.Join(dir, "whole.db")
	db, err := boltstore.Open(whole, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		if err := s.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("c", i),
			UID: "u", ResourceVersion: fmt.Sprint(i + 1)},
			Data: map[string]string{"k": strings.Repeat("x", 500)}}); err != nil {
			t.Fatal(err)
		}
	}
	s.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}
	// Exactly one page with objects is lost.
	path := filepath.Join(dir, "f.db")
	page, found := os.Getpagesize(), false
	for at := 2 * page; at < len(b) && !found; at += page {
		cut := append([]byte(nil), b...)
		clear(cut[at : at+page])
		if err := os.WriteFile(path, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		db, err := boltstore.Open(path, boltstore.Options{ReadOnly: true})
		if err == nil {
			_ = db.Close()
			continue
		}
		try := filepath.Join(dir, fmt.Sprint("try", at))
		if err := os.WriteFile(try, cut, 0o600); err != nil {
			t.Fatal(err)
		}
		if db, err = boltstore.Open(try, boltstore.Options{}); err != nil {
			t.Fatal(err)
		}
		states, err := db.States()
		found = err == nil && len(states) == 1 && states[0].Degraded != "" && states[0].Objects > 0
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !found {
		t.Fatal("no page is like that")
	}
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	url, log := serving(t, path, kubeconfig)
	await(t, url+"/metrics", 200, `kubewake_set_aside_files{reason="damaged"} 1`, log)
	await(t, url+"/metrics", 200, `kubewake_files_set_aside_total 1`, log)
	await(t, url+"/status", 200, `"setAside": [`, log)
	await(t, url+"/status", 200, `f.db.corrupt-`, log)
	got := status(t, path)
	saved := `(?m)^configmaps/v1 needs a relist: the file was damaged, \d+ of 200 objects could be saved$`
	if !regexp.MustCompile(saved).MatchString(got) {
		t.Error(got)
	}
	want := fmt.Sprintf(`(?m)^set aside at \S+, damaged: .*f\.db\.corrupt-\S+, %d bytes$`, len(b))
	if !regexp.MustCompile(want).MatchString(got) {
		t.Error(got)
	}
}
