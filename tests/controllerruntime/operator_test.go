package controllerruntime

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	durable "github.com/kubewake/kubewake/informer/controllerruntime"
)

const (
	envFile       = "OPERATOR_FILE"
	envKubeconfig = "OPERATOR_KUBECONFIG"
	envNamespace  = "OPERATOR_NAMESPACE" // several are separated by commas
	envHang       = "OPERATOR_HANG"      // the name of an object whose reconcile does not return
	envDice       = "OPERATOR_DICE"      // some reconciles fail
	envAgain      = "OPERATOR_AGAIN"     // each asks to be made again in an hour
	envElect      = "OPERATOR_ELECT"     // it waits for the file and for the lease, and has a plain controller, too
)

// operate is an operator over config maps. For each reconcile, before it returns, it
// writes a line with the object's state.
func operate(path, kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS = -1
	namespaces := map[string]cache.Config{}
	for ns := range strings.SplitSeq(os.Getenv(envNamespace), ",") {
		namespaces[ns] = cache.Config{}
	}
	o, f := ctrl.Options{
		Metrics: metrics.Options{BindAddress: "0"},
		Cache:   cache.Options{DefaultNamespaces: namespaces},
	}, durable.File{Path: path}
	if os.Getenv(envElect) != "" {
		elect(&o, &f)
	}
	mgr, err := durable.NewManager(cfg, o, f)
	if err != nil {
		return err
	}
	if o.LeaderElection {
		if err := plain(mgr); err != nil {
			return err
		}
	}
	work := durable.NewWork("operator")
	err = ctrl.NewControllerManagedBy(mgr).
		Named("operator").
		WithOptions(controller.Options{MaxConcurrentReconciles: 4}).
		WatchesRawSource(durable.Kind(work, mgr.GetCache(), &corev1.ConfigMap{},
			&handler.TypedEnqueueRequestForObject[*corev1.ConfigMap]{})).
		Complete(work.Reconciler(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			var cm corev1.ConfigMap
			err := mgr.GetClient().Get(ctx, req.NamespacedName, &cm)
			switch {
			case req.Name == os.Getenv(envHang):
				fmt.Println("HANGS", req)
				select {}
			case os.Getenv(envDice) != "" && rand.IntN(5) == 0:
				return ctrl.Result{}, errors.New("not now")
			case apierrors.IsNotFound(err):
				fmt.Println("GONE", req)
			case err != nil:
				return ctrl.Result{}, err
			default:
				fmt.Println("FOUND", req, cm.ResourceVersion)
			}
			if os.Getenv(envAgain) != "" {
				return ctrl.Result{RequeueAfter: time.Hour}, nil
			}
			return ctrl.Result{}, nil
		})))
	if err != nil {
		return err
	}
	go func() {
		if mgr.GetCache().WaitForCacheSync(context.Background()) {
			fmt.Println("SYNCED")
		}
	}()
	return mgr.Start(ctrl.SetupSignalHandler())
}

// operator is an operator's file, and the lives of its process.
type operator struct {
	t          *testing.T
	client     *kubernetes.Clientset
	namespaces []string
	path       string
	kubeconfig string
	shown      bool // a killed life had replayed

	mu   sync.Mutex
	said []string // by all lives
}

func newOperator(t *testing.T, namespaces ...string) *operator {
	s := server(t)
	o := &operator{t: t, client: s.Client(t), path: filepath.Join(t.TempDir(), "wake.db"), kubeconfig: s.Kubeconfig(t)}
	for _, ns := range namespaces {
		made, err := o.client.CoreV1().Namespaces().Create(t.Context(),
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: ns + "-"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		o.namespaces = append(o.namespaces, made.Name)
	}
	return o
}

func (o *operator) write(ns, name, data string) string {
	o.t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"data": data}}
	got, err := o.client.CoreV1().ConfigMaps(ns).Update(context.Background(), cm, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		got, err = o.client.CoreV1().ConfigMaps(ns).Create(context.Background(), cm, metav1.CreateOptions{})
	}
	if err != nil {
		o.t.Fatal(err)
	}
	return fmt.Sprintf("FOUND %s/%s %s", ns, name, got.ResourceVersion)
}

func (o *operator) remove(ns, name string) string {
	o.t.Helper()
	if err := o.client.CoreV1().ConfigMaps(ns).Delete(context.Background(), name,
		metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		o.t.Fatal(err)
	}
	return fmt.Sprintf("GONE %s/%s", ns, name)
}

// mark returns how many lines there are.
func (o *operator) mark() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.said)
}

func (o *operator) since(mark int) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.said[mark:]...)
}

// says waits for a line since mark.
func (o *operator) says(mark int, line string) {
	o.t.Helper()
	defer func() {
		if o.t.Failed() {
			o.t.Logf("said since then:\n%s", strings.Join(o.since(mark), "\n"))
		}
	}()
	eventually(o.t, line, func() bool {
		for _, l := range o.since(mark) {
			if l == line {
				return true
			}
		}
		return false
	})
}

// running is one life.
type running struct {
	o    *operator
	cmd  *exec.Cmd
	read chan struct{} // all it wrote was read
}

func (o *operator) live(env ...string) *running {
	o.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), envFile+"="+o.path, envKubeconfig+"="+o.kubeconfig,
		envNamespace+"="+strings.Join(o.namespaces, ",")), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		o.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		o.t.Fatal(err)
	}
	r := &running{o, cmd, make(chan struct{})}
	go func() {
		defer close(r.read)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			o.mu.Lock()
			o.said = append(o.said, lines.Text())
			o.mu.Unlock()
		}
	}()
	o.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return r
}

func (r *running) kill() {
	_ = r.cmd.Process.Kill()
	<-r.read
	_ = r.cmd.Wait()
}

// end ends the life in order.
func (r *running) end() {
	r.o.t.Helper()
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		r.o.t.Fatal(err)
	}
	<-r.read
	if err := r.cmd.Wait(); err != nil {
		r.o.t.Fatal(err)
	}
}

// TestKilledOperator: an operator's next life reconciles the work that was unfinished at
// the kill, and the changes while it was down, deletes included; it does not repeat
// finished work.
func TestKilledOperator(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "one", "two")
	one, two := o.namespaces[0], o.namespaces[1]
	a, b, c := o.write(one, "a", "1"), o.write(one, "b", "1"), o.write(two, "a", "1")
	life := o.live()
	for _, line := range []string{a, b, c, "SYNCED"} {
		o.says(0, line)
	}
	life.end()

	// Nothing has changed: only new changes are reconciled.
	at := o.mark()
	life = o.live(envHang + "=hangs")
	o.says(at, "SYNCED")
	d := o.write(two, "d", "1")
	o.says(at, d)
	for _, l := range o.since(at) {
		if l != d && l != "SYNCED" && !strings.Contains(l, "kube-root-ca.crt") {
			t.Errorf("of what was finished %q is reconciled again", l)
		}
	}
	hangs := o.write(one, "hangs", "1")
	o.says(at, fmt.Sprintf("HANGS %s/hangs", one))
	for i := range 3 { // the file has what was acknowledged before
		o.says(at, o.write(one, "later", fmt.Sprint(i)))
	}
	life.kill()

	gone := []string{o.remove(one, "a"), o.remove(two, "d")}
	changed := o.write(one, "b", "2")
	added := o.write(two, "e", "1")
	at = o.mark()
	life = o.live()
	for _, line := range append(gone, changed, added, hangs) {
		o.says(at, line)
	}
	for _, l := range o.since(at) {
		if l == c {
			t.Errorf("%q is reconciled again", l)
		}
	}
	life.end()
}

// TestAgain: objects that must be reconciled from time to time are reconciled in the next
// life, too, even without any change.
func TestAgain(t *testing.T) {
	t.Parallel()
	o := newOperator(t, "again")
	ns := o.namespaces[0]
	var lines []string
	for i := range 30 {
		lines = append(lines, o.write(ns, fmt.Sprint("o", i), "1"))
	}
	for range 2 {
		at := o.mark()
		life := o.live(envAgain + "=1")
		for _, line := range lines {
			o.says(at, line)
		}
		for i := range 3 { // the file has what was acknowledged before
			lines[0] = o.write(ns, "o0", fmt.Sprint(at, i))
			o.says(at, lines[0])
		}
		life.kill()
	}
	at := o.mark()
	life := o.live()
	for _, line := range lines {
		o.says(at, line)
	}
	life.end()
	at = o.mark()
	life = o.live()
	o.says(at, "SYNCED")
	last := o.write(ns, "last", "1")
	o.says(at, last)
	life.end()
	for _, l := range o.since(at) {
		if l != last && l != "SYNCED" {
			t.Errorf("of what was finished %q is reconciled again", l)
		}
	}
}
