// Package cli runs the command as a person would, by the scripts in testdata.
package cli

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/rogpeppe/go-internal/testscript"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

var kubewake string

func TestMain(m *testing.M) {
	if signal.Ignored(syscall.SIGHUP) { // as by nohup; the scripts' programs are to notice it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	dir, err := os.MkdirTemp("", "kubewake-cli-")
	if err != nil {
		panic(err)
	}
	kubewake = filepath.Join(dir, "kubewake")
	build := exec.Command("go", "build", "-o", kubewake, ".")
	build.Dir = "../../cmd/kubewake"
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\n%v\n", out, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// TestScripts gives each script a simulated cluster of its own ($KUBECONFIG).
// Besides testscript's commands there are
//
//	mirrored ARGS...   run kubewake mirror until all types are live, then end it with SIGTERM
//	mirroring ARGS...  the same, and it runs until the script ends; its log so far is in mirror.log
//
// said PATTERN... -- ARGS...  run kubewake until its log has a line for each pattern, then end
// it; its log is in said.log
//
//	server up|down     let the server answer, or refuse connections
//	change             change pod shop-1 and secret key, delete pod blog-1, add pod new-1
//	forbid             the next request for objects is refused
//	retire GROUP VERSION  the server drops a version of a group
//	prefix NAME        from now on the server is found at a path of that name, as with Rancher
//	lock FILE          another process has the file open, until the script ends
//	unlock FILE        or until now
//	cut FILE N         keep the first N bytes of a file
//	cycle FILE         make a file in which following bbolt's pages never ends
//	flip FILE TEXT     change a byte of the text in the file
//	hides FILE TEXT... the file's bytes have none of the texts; negated, all of them
//
// serving ARGS...    run kubewake serve, or mirror --serve, of f.db, until served or the script
// ends; its log so far is in serve.log
//
//	served             end it
//	api WAY METHOD PATH [BODY]  send a request by a kubeconfig or a .sock; code, warning and body are in api.out
//	mode FILE MODE     the file has these permissions, in octal
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:      "testdata",
		Deadline: time.Now().Add(10 * time.Minute), // a script that waits in vain says where
		Setup: func(e *testscript.Env) error {
			sim := kubesim.New(kubesim.Options{Resources: resources()})
			if _, err := sim.Start(); err != nil {
				return err
			}
			e.Defer(sim.Close)
			e.Values["sim"] = sim
			if err := fill(sim); err != nil {
				return err
			}
			e.Setenv("PATH", filepath.Dir(kubewake)+string(os.PathListSeparator)+os.Getenv("PATH"))
			e.Setenv("HOME", e.WorkDir)
			path := filepath.Join(e.WorkDir, "kubeconfig")
			e.Setenv("KUBECONFIG", path)
			return writeKubeconfig(path, sim.URL())
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mirrored": mirrored, "mirroring": mirroring, "said": said, "cycle": cycle, "flip": flip,
			"server": server, "forbid": forbid, "retire": retire, "change": change, "lock": lock, "unlock": unlock,
			"cut":   cut,
			"hides": hides, "mode": mode, "prefix": prefix, "serving": serves, "served": served, "api": asked,
		},
	})
}

func writeKubeconfig(path, server string) error {
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: server}
	c.Contexts["sim"] = &api.Context{Cluster: "sim", Namespace: "web"}
	c.CurrentContext = "sim"
	return clientcmd.WriteToFile(*c, path)
}

// resources are kubesim's types, and types that share their names with others.
func resources() []kubesim.Resource {
	v1 := func(group, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
	}
	known := kubesim.DefaultResources()
	for i := range known {
		if known[i].Kind == "Widget" {
			known[i].Columns = []printcolumns.Column{{Name: "Size", Type: "integer", JSONPath: ".spec.size"},
				{Name: "Age", Type: "date", JSONPath: ".metadata.creationTimestamp"}}
		}
	}
	return append(known,
		kubesim.Resource{GroupVersionKind: schema.GroupVersionKind{Version: "v1", Kind: "Event"}, Plural: "events",
			Namespaced: true, ShortNames: []string{"ev"}},
		kubesim.Resource{GroupVersionKind: v1("serving.knative.dev", "Service"), Plural: "services", Namespaced: true,
			ShortNames: []string{"ksvc"}},
		kubesim.Resource{GroupVersionKind: v1("old.example.org", "Relic"), Plural: "relics", Namespaced: true},
		kubesim.Resource{GroupVersionKind: schema.GroupVersionKind{Group: "old.example.org", Version: "v1beta1",
			Kind: "Relic"}, Plural: "relics", Namespaced: true},
		kubesim.Resource{GroupVersionKind: v1("b.example.org", "Gadget"), Plural: "gadgets"},
		kubesim.Resource{GroupVersionKind: v1("c.example.org", "Gadget"), Plural: "gadgets", Namespaced: true,
			ShortNames: []string{"gd"}},
	)
}

func fill(sim *kubesim.Server) error {
	shop := map[string]string{"app": "shop"}
	meta := func(ns, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}
	}
	widget := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
		"metadata": map[string]any{"namespace": "web", "name": "w1"}, "spec": map[string]any{"size": int64(3)}}}
	knative := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "serving.knative.dev/v1",
		"kind":     "Service",
		"metadata": map[string]any{"namespace": "web", "name": "hello"}}}
	relic := func(version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "old.example.org/" + version,
			"kind":     "Relic",
			"metadata": map[string]any{"namespace": "web", "name": version}}}
	}
	three, running := int32(3), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	var errs []error
	for _, o := range []kubesim.Object{
		&corev1.Pod{ObjectMeta: meta("web", "shop-1", shop),
			Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c"}}},
			Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.0.0.1",
				ContainerStatuses: []corev1.ContainerStatus{{Name: "c", Ready: true, RestartCount: 2,
					State: running}}}},
		&corev1.Pod{ObjectMeta: meta("web", "blog-1", nil),
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}},
			Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "c",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}}},
		&corev1.Pod{ObjectMeta: meta("other", "shop-2", shop)},
		&corev1.Secret{ObjectMeta: meta("web", "key", nil), Data: map[string][]byte{"password": []byte("hunter2")},
			Type: corev1.SecretTypeOpaque},
		&corev1.ConfigMap{ObjectMeta: meta("web", "conf", nil), Data: map[string]string{"a": "1", "b": "2"}},
		&appsv1.Deployment{ObjectMeta: meta("web", "shop", shop), Spec: appsv1.DeploymentSpec{Replicas: &three},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 1, UpdatedReplicas: 2}},
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		&corev1.Service{ObjectMeta: meta("web", "shop", shop),
			Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.1.1.1"}},
		widget, knative, relic("v1beta1"), relic("v1"),
		&corev1.Event{ObjectMeta: meta("web", "shop-1.started", nil),
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "web", Name: "shop-1"},
			Type:           corev1.EventTypeNormal, Reason: "Started", Message: "Container c started",
			Source: corev1.EventSource{Component: "kubelet"}},
	} {
		errs = append(errs, sim.Create(o))
	}
	return errors.Join(errs...)
}

func must(ts *testscript.TestScript, err error) { ts.Check(err) }

func sim(ts *testscript.TestScript) *kubesim.Server { return ts.Value("sim").(*kubesim.Server) }

// mirror is a kubewake mirror whose types are all live.
func mirror(ts *testscript.TestScript, args []string) (end func(), log *buffer) {
	types := 0
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			break
		}
		types++
	}
	l := launch(ts, append([]string{"mirror"}, args...)...)
	l.until("live", func(log string) bool { return areLive(log) >= types })
	return l.end, l.log
}

// areLive is how many types a mirror's log says are live. It may say so of one more than once.
func areLive(log string) int {
	seen := map[string]bool{}
	for line := range strings.Lines(log) {
		if typ, _, ok := strings.Cut(line, ": live at"); ok {
			seen[typ] = true
		}
	}
	return len(seen)
}

func mirrored(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("mirrored cannot be negated")
	}
	end, log := mirror(ts, args)
	end()
	ts.Logf("%s", log.String())
}

func mirroring(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("mirroring cannot be negated")
	}
	end, log := mirror(ts, args)
	must(ts, os.WriteFile(ts.MkAbs("mirror.log"), []byte(log.String()), 0o600))
	ts.Defer(end)
}

func server(ts *testscript.TestScript, _ bool, args []string) {
	must(ts, sim(ts).RefuseConnections(args[0] == "down"))
}

func change(ts *testscript.TestScript, _ bool, _ []string) {
	s := sim(ts)
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "web", Name: name, ManagedFields: []metav1.ManagedFieldsEntry{
			{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
				FieldsV1: metav1.NewFieldsV1("{}")}}}
	}
	must(ts, s.Update(&corev1.Pod{ObjectMeta: meta("shop-1"),
		Spec: corev1.PodSpec{NodeName: "n1", Containers: []corev1.Container{{Name: "c", Image: "shop:2"}}}}))
	must(ts, s.Update(&corev1.Secret{ObjectMeta: meta("key"), Data: map[string][]byte{"password": []byte("hunter3")},
		Type: corev1.SecretTypeOpaque}))
	must(ts, s.Delete(&corev1.Pod{ObjectMeta: meta("blog-1")}))
	must(ts, s.Create(&corev1.Pod{ObjectMeta: meta("new-1")}))
}

func prefix(ts *testscript.TestScript, _ bool, args []string) {
	to, err := url.Parse(sim(ts).URL())
	must(ts, err)
	path := "/k8s/clusters/" + args[0]
	front := httptest.NewServer(http.StripPrefix(path,
		&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}))
	ts.Defer(front.Close)
	must(ts, writeKubeconfig(ts.Getenv("KUBECONFIG"), front.URL+path))
}

func forbid(ts *testscript.TestScript, _ bool, _ []string) {
	sim(ts).FailNext(func(r *http.Request) bool { return strings.Contains(r.URL.Path, "/pods") }, 100,
		kubesim.Answer(apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("no access for you"))))
}

func retire(ts *testscript.TestScript, _ bool, args []string) {
	sim(ts).FailNext(func(r *http.Request) bool {
		return strings.HasPrefix(r.URL.Path, "/apis/"+args[0]+"/"+args[1])
	}, math.MaxInt,
		kubesim.Answer(apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{}, "", "",
			0, true)))
}

func lock(ts *testscript.TestScript, _ bool, args []string) {
	db, err := boltstore.Open(ts.MkAbs(args[0]), boltstore.Options{})
	must(ts, err)
	ts.Defer(func() { _ = db.Close() })
	locked.Store(ts.MkAbs(args[0]), db)
}

var locked sync.Map // by file

func unlock(ts *testscript.TestScript, _ bool, args []string) {
	db, ok := locked.Load(ts.MkAbs(args[0]))
	if !ok {
		ts.Fatalf("%s was not locked", args[0])
	}
	must(ts, db.(*boltstore.DB).Close())
}

func cut(ts *testscript.TestScript, _ bool, args []string) {
	var n int64
	_, err := fmt.Sscan(args[1], &n)
	must(ts, err)
	must(ts, os.Truncate(ts.MkAbs(args[0]), n))
}

func cycle(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	db, err := boltstore.Open(path, boltstore.Options{})
	must(ts, err)
	s, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
	must(ts, err)
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { must(ts, err) }})
	must(ts, err)
	for i := range 1000 {
		must(ts, r.Page([]runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web",
			Name: fmt.Sprint("c", i), ResourceVersion: fmt.Sprint(i + 1)}}}))
	}
	_, err = r.Commit("2000", time.Now())
	must(ts, err)
	s.Release()
	must(ts, db.Close())
	b, err := os.ReadFile(path)
	must(ts, err)
	// Each branch page becomes its own first child; internal/common/page.go of bbolt
	// shows the layout.
	const branch, head = 0x01, 16
	found := 0
	for at := 0; at < len(b); at += os.Getpagesize() {
		if page := b[at:]; binary.NativeEndian.Uint16(page[8:]) == branch &&
			binary.NativeEndian.Uint64(page) == uint64(at/os.Getpagesize()) {
			copy(page[head+8:head+16], page[:8])
			found++
		}
	}
	if found == 0 {
		ts.Fatalf("no branch page")
	}
	must(ts, os.WriteFile(path, b, 0o600))
}

func flip(ts *testscript.TestScript, _ bool, args []string) {
	path := ts.MkAbs(args[0])
	b, err := os.ReadFile(path)
	must(ts, err)
	if !bytes.Contains(b, []byte(args[1])) {
		ts.Fatalf("%s has no %q", args[0], args[1])
	}
	must(ts, os.WriteFile(path, bytes.ReplaceAll(b, []byte(args[1]), []byte("X"+args[1][1:])), 0o600))
}

// buffer is written by a process and read by a test.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// hides says that the bytes of a file have none of the strings; negated, that
// they have all of them.
func hides(ts *testscript.TestScript, neg bool, args []string) {
	file := ts.ReadFile(args[0])
	for _, s := range args[1:] {
		if strings.Contains(file, s) != neg {
			ts.Fatalf("%s: %q is there: %v", args[0], s, !neg)
		}
	}
}

// mode checks that a file has the permissions that are given in octal.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	st, err := os.Stat(ts.MkAbs(args[0]))
	must(ts, err)
	if got := fmt.Sprintf("%o", st.Mode().Perm()); got != args[1] {
		ts.Fatalf("mode of %s is %s", args[0], got)
	}
}
