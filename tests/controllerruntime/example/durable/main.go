// An operator that writes a line for each config map that it has looked at.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/kubewake/kubewake/informer/controllerruntime"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}}
	mgr, err := controllerruntime.NewManager(ctrl.GetConfigOrDie(), options, controllerruntime.File{Path: "cache.db"})
	if err != nil {
		log.Fatal(err)
	}
	work := controllerruntime.NewWork("shop")
	err = ctrl.NewControllerManagedBy(mgr).
		Named("shop").
		WatchesRawSource(controllerruntime.For(work, mgr.GetCache(), &corev1.ConfigMap{})).
		Complete(work.Reconciler(&shop{mgr.GetClient()}))
	if err != nil {
		log.Fatal(err)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		log.Fatal(err)
	}
}

type shop struct{ client.Client }

// Reconcile implements reconcile.Reconciler.
func (s *shop) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cm corev1.ConfigMap
	if err := s.Get(ctx, req.NamespacedName, &cm); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	} else if err != nil {
		fmt.Println("gone", req)
		return ctrl.Result{}, nil
	}
	fmt.Println("found", req, cm.Data["data"])
	return ctrl.Result{}, nil
}
