package controllerruntime

import (
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	durable "github.com/kubewake/kubewake/informer/controllerruntime"
)

// elect makes an operator wait for the lease, and for the file.
func elect(o *ctrl.Options, f *durable.File) {
	ns, _, _ := strings.Cut(os.Getenv(envNamespace), ",")
	o.LeaderElection, o.LeaderElectionID, o.LeaderElectionNamespace = true, "operator", ns
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = new(3*time.Second), new(2*time.Second), new(200*time.Millisecond)
	f.Options.LockTimeout = 5 * time.Minute
}

// plain adds a controller whose work is not durable.
func plain(mgr ctrl.Manager) error {
	if err := mgr.GetFieldIndexer().IndexField(context.Background(), &corev1.ConfigMap{}, "data",
		func(o client.Object) []string {
			return []string{o.(*corev1.ConfigMap).Data["data"]}
		}); err != nil {
		return err
	}
	return ctrl.NewControllerManagedBy(mgr).Named("plain").For(&corev1.ConfigMap{}).
		Complete(reconcile.Func(func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
			err := mgr.GetClient().Get(ctx, req.NamespacedName, &corev1.ConfigMap{})
			if apierrors.IsNotFound(err) {
				fmt.Println("PLAIN GONE", req)
			}
			return ctrl.Result{}, client.IgnoreNotFound(err)
		}))
}

// TestRollingOperator: an operator is replaced by a new one on the same file, which waits for
// the file and then for the lease. However the old one ends, one of the two reconciles each
// delete. A delete after that reaches plain controllers, too.
func TestRollingOperator(t *testing.T) {
	for how, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			o := newOperator(t, "one", "two")
			one, two := o.namespaces[0], o.namespaces[1]
			for _, name := range []string{"before", "between", "during", "after"} {
				o.write(one, name, "1")
			}
			kept := o.write(two, "kept", "1")
			old := o.live(envElect + "=1")
			o.says(0, "SYNCED")
			o.says(0, kept)
			replacement := o.live(envElect + "=1")
			gone := o.remove(one, "before")
			o.says(0, gone)
			o.says(0, "PLAIN "+gone)
			between, at := o.remove(one, "between"), o.mark()
			if err := old.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			<-old.read
			if err := old.cmd.Wait(); (err == nil) != (signal == syscall.SIGTERM) {
				t.Errorf("the old one: %v", err)
			}
			during := o.remove(one, "during")
			o.says(at, "SYNCED")
			o.says(0, between)
			o.says(at, during)
			o.says(at, "PLAIN "+during)
			after := o.remove(one, "after")
			o.says(at, after)
			o.says(at, "PLAIN "+after)
			replacement.end()
		})
	}
}
