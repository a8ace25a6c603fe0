// Package serve tests a file's API on a real API server: who gets in, and clients that
// outlive killed mirrors, lost links and a server that restarts.
package serve

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/cert"

	"github.com/kubewake/kubewake/tests/apiserver"
)

// world is a server behind a link, and a file.
type world struct {
	*testing.T
	s          *apiserver.Server
	direct     *kubernetes.Clientset
	link       *apiserver.Link
	bin, dir   string
	kubeconfig string // of the admin, over the link
}

func newWorld(t *testing.T) *world {
	s := apiserver.Start(t, apiserver.Options{NoAudit: true})
	w := &world{T: t, s: s, direct: s.Client(t), dir: t.TempDir()}
	w.bin = apiserver.Kubewake(t)
	w.link = s.Link(t)
	w.kubeconfig = w.link.Kubeconfig(t, s)
	for _, ns := range []string{"a", "b"} {
		if _, err := w.direct.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.create(ns, "first")
	}
	return w
}

func (w *world) create(namespace, name string) {
	w.Helper()
	if _, err := w.direct.CoreV1().ConfigMaps(namespace).Create(w.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

// program is a running kubewake.
type program struct {
	*exec.Cmd
	mu  sync.Mutex
	log strings.Builder
}

// Write implements io.Writer.
func (p *program) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.Write(b)
}

func (p *program) said() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// run runs kubewake until it says what.
func (w *world) run(what string, args ...string) *program {
	w.Helper()
	p := &program{Cmd: exec.Command(w.bin,
		append(args, "--db", filepath.Join(w.dir, "f.db"), "--kubeconfig", w.kubeconfig)...)}
	p.Env = append(os.Environ(), "HOME="+w.dir)
	p.Stderr = p
	if err := p.Start(); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		p.kill()
		if w.Failed() {
			w.Logf("%s said:\n%s", args[0], p.said())
		}
	})
	w.until(args[0]+" says "+what, func() bool { return strings.Contains(p.said(), what) })
	return p
}

func (p *program) kill() {
	_ = p.Process.Kill() // it may have ended
	_ = p.Wait()         // likewise
}

func (w *world) until(what string, cond func() bool) {
	w.Helper()
	deadline := time.NewTimer(2 * time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-deadline.C:
			w.Fatalf("never: %s", what)
		case <-tick.C:
		}
	}
}

func (w *world) client(cfg *rest.Config) *kubernetes.Clientset {
	w.Helper()
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// TestServe runs on one server, since it takes seconds to start.
func TestServe(t *testing.T) {
	w := newWorld(t)
	mirror := w.run(": live at", "mirror", "configmaps", "-A")
	crt, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{"crt": crt, "key": key} {
		if err := os.WriteFile(filepath.Join(w.dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"serve", "--pass-through", "--tls-listen", "127.0.0.1:0", "--tls-cert",
		filepath.Join(w.dir, "crt"),
		"--tls-key", filepath.Join(w.dir, "key"), "--token-review", "--offline", "1h"}
	served := w.run("for other users", args...)
	at := regexp.MustCompile(`at (https://\S+), for other users`).FindStringSubmatch(served.said())
	if at == nil {
		t.Fatal(served.said())
	}
	t.Run("rights", func(t *testing.T) {
		w.rights(t, &rest.Config{Host: at[1], QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: crt}})
	})
	t.Run("an informer", func(t *testing.T) { w.informer(t, mirror, served, args) })
}

// rights: a service account reads and writes exactly the objects that it may.
func (w *world) rights(t *testing.T, cfg *rest.Config) {
	ctx := t.Context()
	if _, err := w.direct.CoreV1().ServiceAccounts("a").Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"},
			Verbs: []string{"get", "list", "watch", "delete"}}}}
	if _, err := w.direct.RbacV1().Roles("a").Create(ctx, role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{ObjectMeta: role.ObjectMeta,
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "a", Name: "reader"}}}
	if _, err := w.direct.RbacV1().RoleBindings("a").Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	token, err := w.direct.CoreV1().ServiceAccounts("a").CreateToken(ctx, "reader", &authenticationv1.TokenRequest{},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cfg = rest.CopyConfig(cfg)
	cfg.BearerToken = token.Status.Token
	c := w.client(cfg)
	w.until("it may read a", func() bool { // the server learns of a binding after a while, and a denial is kept
		_, err := c.CoreV1().ConfigMaps("a").List(ctx, metav1.ListOptions{})
		return err == nil
	})
	who, err := c.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{})
	if err != nil || who.Status.UserInfo.Username != "system:serviceaccount:a:reader" {
		t.Errorf("%+v %v", who, err)
	}
	for what, try := range map[string]func() error{
		"list b": func() error {
			_, err := c.CoreV1().ConfigMaps("b").List(ctx, metav1.ListOptions{})
			return err
		},
		"list all": func() error {
			_, err := c.CoreV1().ConfigMaps("").List(ctx, metav1.ListOptions{})
			return err
		},
		"get in b": func() error {
			_, err := c.CoreV1().ConfigMaps("b").Get(ctx, "first", metav1.GetOptions{})
			return err
		},
		"watch b": func() error {
			_, err := c.CoreV1().ConfigMaps("b").Watch(ctx, metav1.ListOptions{})
			return err
		},
		"list Secrets": func() error { _, err := c.CoreV1().Secrets("a").List(ctx, metav1.ListOptions{}); return err },
		"create": func() error {
			_, err := c.CoreV1().ConfigMaps("a").Create(ctx,
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.create("a", "gone")
	if err := c.CoreV1().ConfigMaps("a").Delete(ctx, "gone", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := w.direct.CoreV1().ConfigMaps("a").Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was not deleted: %v", err)
	}
	if _, err := c.CoreV1().ConfigMaps("a").Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a read after the delete: %v", err)
	}
	cfg.BearerToken = "guess"
	if _, err := w.client(cfg).CoreV1().ConfigMaps("a").List(ctx,
		metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("another token: %v", err)
	}

	w.link.Lose()
	defer w.link.Restore()
	list := func(ns string) error { _, err := c.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}); return err }
	if err := list("a"); err != nil {
		t.Errorf("offline, what it may: %v", err)
	}
	if err := list("b"); !apierrors.IsForbidden(err) {
		t.Errorf("offline, what it may not: %v", err)
	}
	// Requests that are refused for a time are sent again by the client.
	raw := w.raw(c)
	resp, err := raw.Post(cfg.Host+"/api/v1/namespaces/a/configmaps", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
		t.Errorf("a write offline: %s", resp.Status)
	}
}

func (w *world) raw(c *kubernetes.Clientset) *http.Client {
	return c.CoreV1().RESTClient().(*rest.RESTClient).Client
}

// informer: client-go's informer over the written kubeconfig ends equal to the server,
// whatever happens to the mirror, the serving process, the link and the server.
func (w *world) informer(t *testing.T, mirror, served *program, args []string) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(w.dir, "f.db.kubeconfig"))
	if err != nil {
		t.Fatal(err)
	}
	cfg.QPS = -1
	factory := informers.NewSharedInformerFactory(w.client(cfg), 0)
	inf := factory.Core().V1().ConfigMaps().Informer()
	ctx, cancel := context.WithCancel(context.Background())
	factory.StartWithContext(ctx)
	defer func() {
		cancel()
		factory.Shutdown()
	}()
	if !cache.WaitForCacheSync(t.Context().Done(), inf.HasSynced) {
		t.Fatal("not synced")
	}
	round := 0
	change := func() {
		t.Helper()
		round++
		for i := range 20 {
			w.create("a", fmt.Sprintf("r%d-%d", round, i))
		}
		for _, name := range []string{"1", "2"} {
			if err := w.direct.CoreV1().ConfigMaps("a").Delete(t.Context(), fmt.Sprintf("r%d-%s", round, name),
				metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		cm, err := w.direct.CoreV1().ConfigMaps("a").Get(t.Context(), "first", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cm.Data = map[string]string{"round": fmt.Sprint(round)}
		if _, err := w.direct.CoreV1().ConfigMaps("a").Update(t.Context(), cm, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	equal := func(when string) {
		t.Helper()
		w.until(when+": the informer is equal to the server", func() bool {
			list, err := w.direct.CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return false
			}
			want := map[string]string{}
			for i := range list.Items {
				want[list.Items[i].Namespace+"/"+list.Items[i].Name] = list.Items[i].ResourceVersion
			}
			have := inf.GetStore().List()
			for _, o := range have {
				cm := o.(*corev1.ConfigMap)
				if want[cm.Namespace+"/"+cm.Name] != cm.ResourceVersion {
					return false
				}
			}
			return len(have) == len(want)
		})
	}
	change()
	equal("a live mirror")
	for i := range 3 {
		mirror.kill()
		change()
		mirror = w.run(": live at", "mirror", "configmaps", "-A")
		change()
		equal(fmt.Sprint("mirror killed ", i+1))
	}
	served.kill()
	change()
	w.run("for other users", args...)
	equal("what serves is killed")
	w.link.Lose()
	change()
	mirror.kill()
	w.run("objects from the file", "mirror", "configmaps", "-A")
	if n := len(inf.GetStore().List()); n == 0 {
		t.Error("offline the informer has nothing")
	}
	w.link.Restore()
	equal("link lost, and the mirror killed meanwhile")
	if err := w.s.RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	change()
	equal("server restarted")
}
