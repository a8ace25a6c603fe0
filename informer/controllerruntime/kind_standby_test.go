package controllerruntime

import (
	"context"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kubewake/kubewake/boltstore"
)

// lease is one that another process holds until free is set.
type lease struct {
	resourcelock.Interface
	free atomic.Bool
}

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if !l.free.Load() {
		return &resourcelock.LeaderElectionRecord{HolderIdentity: "other", LeaseDurationSeconds: 3600}, nil, nil
	}
	return &resourcelock.LeaderElectionRecord{}, nil, nil
}
func (l *lease) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }
func (l *lease) RecordEvent(string)                                              {}
func (l *lease) Identity() string                                                { return "standby" }
func (l *lease) Describe() string                                                { return "lease" }

// TestStandby: a replica that takes the lease over reconciles what was deleted while it waited
// for that, if its controller has EnableWarmup.
func TestStandby(t *testing.T) {
	sim := shop(t, "deleted", "stays")
	l := &lease{}
	o := options()
	o.LeaderElection, o.LeaderElectionResourceLockInterface, o.LeaderElectionID = true, l, "test"
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = new(3*time.Second), new(2*time.Second), new(10*time.Millisecond)
	mgr, err := NewManager(sim.RESTConfig(), o,
		File{Path: filepath.Join(t.TempDir(), "test.db"), Options: boltstore.Options{FlushInterval: time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	work := NewWork("standby")
	reconciled := make(chan string, 10)
	c, err := controller.NewUnmanaged("standby",
		controller.Options{EnableWarmup: new(true), SkipNameValidation: new(true),
			Reconciler: work.Reconciler(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result,
				error) {
				reconciled <- req.Name
				return reconcile.Result{}, nil
			}))})
	if err == nil {
		err = c.Watch(For(work, mgr.GetCache(), &corev1.ConfigMap{}))
	}
	if err == nil {
		err = mgr.Add(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	eventually(t, "the standby's handler is told all objects", func() bool {
		states, err := FileOf(mgr).States()
		return err == nil && len(states) == 1 && len(states[0].Handlers) == 1 && !states[0].Handlers[0].Reset &&
			!states[0].Handlers[0].Behind
	})
	if err := sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
		Name: "deleted"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the standby has seen the delete", func() bool {
		var list corev1.ConfigMapList
		return mgr.GetCache().List(ctx, &list) == nil && len(list.Items) == 1
	})
	l.free.Store(true)
	seen := map[string]bool{}
	for !seen["deleted"] || !seen["stays"] {
		select {
		case name := <-reconciled:
			seen[name] = true
		case <-time.After(time.Minute):
			t.Fatal("only reconciled: ", seen)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
