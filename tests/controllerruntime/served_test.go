package controllerruntime

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/tests/apiserver"
)

// served is a mirror that serves its file, over a link, in many lives.
type served struct {
	t          *testing.T
	bin, dir   string
	kubeconfig string
	cmd        *exec.Cmd

	mu  sync.Mutex
	log strings.Builder
}

// Write implements io.Writer.
func (s *served) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.Write(b)
}

// start begins a life that serves.
func (s *served) start() {
	s.t.Helper()
	s.mu.Lock()
	s.log.Reset()
	s.mu.Unlock()
	s.cmd = exec.Command(s.bin, "mirror", "configmaps", "widgets.example.com", "-A", "--serve", "--db",
		filepath.Join(s.dir, "f.db"), "--kubeconfig", s.kubeconfig)
	s.cmd.Env, s.cmd.Stderr = append(os.Environ(), "HOME="+s.dir), s
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the mirror serves", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return strings.Contains(s.log.String(), "; kubectl --kubeconfig")
	})
}

// end ends a life by a signal. It may have ended.
func (s *served) end(sig syscall.Signal) error {
	if err := s.cmd.Process.Signal(sig); err != nil {
		return err
	}
	return s.cmd.Wait()
}

// config is the kubeconfig that the mirror writes.
func (s *served) config() *rest.Config {
	s.t.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "f.db.kubeconfig"))
	if err != nil {
		s.t.Fatal(err)
	}
	cfg.QPS = -1
	return cfg
}

// annotated is the annotation that the operator writes, with the data that it has seen.
const annotated = "example.com/seen"

// mark is a stock reconciler. It writes through the server that its manager has.
func mark(c client.Client) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		var cm corev1.ConfigMap
		if err := c.Get(ctx, req.NamespacedName, &cm); err != nil {
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}
		if seen := cm.Data["data"]; cm.Annotations[annotated] != seen {
			was := cm.DeepCopy()
			metav1.SetMetaDataAnnotation(&cm.ObjectMeta, annotated, seen)
			return ctrl.Result{}, client.IgnoreNotFound(c.Patch(ctx, &cm, client.MergeFrom(was)))
		}
		return ctrl.Result{}, nil
	}
}

// changes are made directly at the server.
func (p *population) changes(round int) {
	p.t.Helper()
	ctx := p.t.Context()
	name := func(i int) metav1.ObjectMeta {
		m := p.meta(0)
		m.Name = fmt.Sprintf("r%d-%d", round, i)
		return m
	}
	for i := range 5 {
		p.create(&corev1.ConfigMap{ObjectMeta: name(i), Data: map[string]string{"data": fmt.Sprint(i)}})
		w := anything(widgets)
		w.SetNamespace(p.ns[0])
		w.SetName(name(i).Name)
		w.SetLabels(name(i).Labels)
		p.create(w)
	}
	for _, o := range []client.Object{&corev1.ConfigMap{}, anything(widgets)} {
		o.SetNamespace(p.ns[0])
		o.SetName(name(3).Name)
		if err := p.client.Delete(ctx, o); err != nil {
			p.t.Fatal(err)
		}
		o.SetName("o0")
		patch := fmt.Sprintf(`{"data":{"data":"round %d"}}`, round)
		if err := p.client.Patch(ctx, o, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
			p.t.Fatal(err)
		}
	}
}

// versions returns the versions of a population's objects.
func (p *population) versions(from client.Reader, l client.ObjectList) (map[string]string, error) {
	if err := from.List(p.t.Context(), l, client.MatchingLabels{"test": p.mark}); err != nil {
		return nil, err
	}
	all := map[string]string{}
	err := meta.EachListItem(l, func(o runtime.Object) error {
		m := o.(client.Object)
		all[m.GetNamespace()+"/"+m.GetName()] = string(m.GetUID()) + " " + m.GetResourceVersion()
		return nil
	})
	return all, err
}

// TestServedManager: a stock manager over mirror --serve, with an operator that writes and
// a leader's lease, ends equal to the server after SIGKILLs of the mirror, a lost link, a
// mirror that begins without the link, and a restart of the API server.
func TestServedManager(t *testing.T) {
	p := newPopulation(t)
	link := server(t).Link(t)
	s := &served{t: t, bin: apiserver.Kubewake(t), dir: t.TempDir(), kubeconfig: link.Kubeconfig(t, server(t))}
	s.start()
	t.Cleanup(func() {
		if err := s.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the mirror said:\n%s", s.log.String())
		}
	})
	o := of(p)
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "served", p.ns[0]
	long, longer := time.Hour, 2*time.Hour // a mirror that is down does not cost the lease
	o.RenewDeadline, o.LeaseDuration, o.LeaderElectionReleaseOnCancel = &long, &longer, true
	mgr, err := ctrl.NewManager(s.config(), o)
	if err != nil {
		t.Fatal(err)
	}
	if err := ctrl.NewControllerManagedBy(mgr).Named("served").For(&corev1.ConfigMap{}).
		Watches(anything(widgets), &handler.EnqueueRequestForObject{}).
		Watches(metadata(configMaps), &handler.EnqueueRequestForObject{}, builder.OnlyMetadata).
		Complete(mark(mgr.GetClient())); err != nil {
		t.Fatal(err)
	}
	end, _ := run(t, mgr)
	equal := func(when string) {
		t.Helper()
		began := time.Now()
		eventually(t, when+": the manager is equal to the server", func() bool {
			for _, name := range []string{"typed", "metadata", "unstructured widgets"} {
				want, err := p.versions(p.client, kinds[name].list())
				if err != nil {
					return false // the server has just been restarted
				}
				have, err := p.versions(mgr.GetCache(), kinds[name].list())
				if err != nil || !maps.Equal(want, have) {
					return false
				}
			}
			var all corev1.ConfigMapList
			if err := mgr.GetCache().List(t.Context(), &all); err != nil {
				t.Fatal(err)
			}
			return !slices.ContainsFunc(all.Items, func(cm corev1.ConfigMap) bool {
				return cm.Annotations[annotated] != cm.Data["data"]
			})
		})
		t.Logf("%s: equal after %.1f s", when, time.Since(began).Seconds())
	}
	equal("at first")
	round := 0
	change := func() { round++; p.changes(round) }
	for i := range 3 {
		if err := s.end(syscall.SIGKILL); err == nil {
			t.Error("a mirror that is killed ends in order")
		}
		change()
		s.start()
		change()
		equal(fmt.Sprint("killed ", i+1))
	}

	link.Lose()
	change()
	if err := s.end(syscall.SIGKILL); err == nil {
		t.Error("a mirror that is killed ends in order")
	}
	s.start()
	// Another manager starts now, and reads the file's objects.
	again, err := ctrl.NewManager(s.config(), of(p))
	if err != nil {
		t.Fatal(err)
	}
	endAgain, _ := run(t, again)
	var late corev1.ConfigMapList
	eventually(t, "offline another manager's cache is read", func() bool {
		return again.GetCache().List(t.Context(), &late) == nil
	})
	if want := 8 + 6*4; len(late.Items) != want {
		t.Errorf("offline another manager has %d objects, want %d", len(late.Items), want)
	}
	if err := endAgain(); err != nil {
		t.Error(err)
	}
	link.Restore()
	equal("the link was lost")

	if err := server(t).RestartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	change()
	equal("the API server restarted")
	if err := end(); err != nil {
		t.Error(err)
	}
}
