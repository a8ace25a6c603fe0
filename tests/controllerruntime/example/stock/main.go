// An operator that writes a line for each config map that it has looked at.
package main

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	options := ctrl.Options{Metrics: server.Options{BindAddress: "0"}}
	mgr, err := ctrl.NewManager(ctrl.GetConfigOrDie(), options)
	if err != nil {
		log.Fatal(err)
	}
	err = ctrl.NewControllerManagedBy(mgr).
		Named("shop").
		For(&corev1.ConfigMap{}).
		Complete(&shop{mgr.GetClient()})
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
