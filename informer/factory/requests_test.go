package factory_test

import (
	"context"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// tenTypes has an object of each of ten types.
func tenTypes() []kubesim.Object {
	m := metav1.ObjectMeta{Namespace: "web", Name: "a"}
	return []kubesim.Object{&corev1.ConfigMap{ObjectMeta: m}, &corev1.Secret{ObjectMeta: m},
		&corev1.Service{ObjectMeta: m}, &corev1.Pod{ObjectMeta: m}, &corev1.ServiceAccount{ObjectMeta: m},
		&corev1.LimitRange{ObjectMeta: m}, &corev1.ResourceQuota{ObjectMeta: m}, &appsv1.Deployment{ObjectMeta: m},
		&appsv1.StatefulSet{ObjectMeta: m}, &appsv1.DaemonSet{ObjectMeta: m}}
}

// TestRequestsOfTenTypes: what a program sends until its ten informers on one server have
// synced. The table in docs/design/waking.md has these numbers.
func TestRequestsOfTenTypes(t *testing.T) {
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	resources := []kubesim.Resource{{GroupVersionKind: core.WithKind("Namespace"), Plural: "namespaces"}}
	for kind, plural := range map[string]string{"ConfigMap": "configmaps", "Secret": "secrets", "Service": "services",
		"Pod": "pods", "ServiceAccount": "serviceaccounts", "LimitRange": "limitranges",
		"ResourceQuota": "resourcequotas", "Node": "nodes"} {
		resources = append(resources, kubesim.Resource{GroupVersionKind: core.WithKind(kind), Plural: plural,
			Namespaced: kind != "Node"})
	}
	for kind, plural := range map[string]string{"Deployment": "deployments", "StatefulSet": "statefulsets",
		"DaemonSet": "daemonsets"} {
		resources = append(resources, kubesim.Resource{GroupVersionKind: apps.WithKind(kind), Plural: plural,
			Namespaced: true})
	}
	for _, tc := range []struct {
		confirm             reflector.Confirm
		first, idle, others kubesim.Cost
	}{
		{reflector.ConfirmAuto, kubesim.Cost{FullReads: 10, Watches: 10, Others: 10, Forms: 3, Bytes: 6000},
			kubesim.Cost{FullReads: 10, Watches: 10, Others: 10, Bytes: 5000},
			kubesim.Cost{FullReads: 10, Watches: 10, Others: 10, Bytes: 5000}},
		{reflector.ConfirmBookmark, kubesim.Cost{FullReads: 10, Watches: 10, Others: 10, Forms: 3, Bytes: 6000},
			kubesim.Cost{Questions: 10, Watches: 10, Others: 10, Bytes: 5000},
			kubesim.Cost{Questions: 10, Watches: 10, Others: 10, Bytes: 5000}},
	} {
		sim := kubesim.New(kubesim.Options{Resources: resources, HTTP2: true})
		if _, err := sim.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(sim.Close)
		for _, o := range tenTypes() {
			if err := sim.Create(o); err != nil {
				t.Fatal(err)
			}
		}
		path := filepath.Join(t.TempDir(), "test.db")
		start := func(what string, most kubesim.Cost) {
			t.Helper()
			sim.ResetRequests()
			db := open(t, path)
			f := informers.NewSharedInformerFactory(client(sim), 0)
			var types []runtime.Object
			for _, o := range tenTypes() {
				types = append(types, o)
			}
			o := factory.Options{Informer: informer.Options{Reflector: reflector.Options{Confirm: tc.confirm}}}
			if err := factory.Wake(f, db, o, types...); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			f.StartWithContext(ctx)
			f.WaitForCacheSync(ctx.Done())
			eventually(t, "ten watches", func() bool { return kubesim.CostOf(sim.Requests()).Watches >= 10 })
			cost := kubesim.CostOf(sim.Requests())
			if t.Logf("%s, confirmed by %v: %+v", what, tc.confirm, cost); cost.Exceeds(most) != "" {
				t.Errorf("%s, confirmed by %v: %s", what, tc.confirm, cost.Exceeds(most))
			}
			stop()
			f.Shutdown()
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
		start("the first", tc.first)
		start("nothing has happened", tc.idle)
		if err := sim.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}); err != nil {
			t.Fatal(err)
		}
		start("others have changed", tc.others)
	}
}
