package controllerruntime

import (
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/kubewake/kubewake/informer"
	durable "github.com/kubewake/kubewake/informer/controllerruntime"
	"github.com/kubewake/kubewake/reflector"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// TestSecondCluster: a manager's file also has the objects of another API server, of core kinds
// and custom ones. The next life reads both without a link to either, and once the links are
// back it sees what has changed at each meanwhile.
func TestSecondCluster(t *testing.T) {
	p := newPopulation(t)
	farServer := apiserver.Start(t, apiserver.Options{NoAudit: true})
	if err := farServer.InstallWidgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	far, err := client.New(farServer.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	only := metav1.ObjectMeta{Namespace: "default", Name: "only", Labels: map[string]string{"test": p.mark}}
	w := anything(widgets)
	w.SetNamespace(only.Namespace)
	w.SetName(only.Name)
	w.SetLabels(only.Labels)
	for _, o := range []client.Object{&corev1.ConfigMap{ObjectMeta: only}, w} {
		if err := far.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	links, configs := []*apiserver.Link{server(t).Link(t), farServer.Link(t)}, []*rest.Config{}
	for i, s := range []*apiserver.Server{server(t), farServer} {
		cfg, err := clientcmd.BuildConfigFromFlags("", links[i].Kubeconfig(t, s))
		if err != nil {
			t.Fatal(err)
		}
		configs = append(configs, cfg)
	}
	f := durable.File{Path: filepath.Join(t.TempDir(), "cache.db"),
		Informers: informer.Options{Strict: true, MaxStaleness: -1}}
	there := informer.Options{Strict: true, MaxStaleness: -1, Reflector: reflector.Options{Cluster: "far"}}
	start := func() (clusters []cluster.Cluster, end func() error) {
		mgr, err := durable.NewManager(configs[0], of(p), f)
		if err != nil {
			t.Fatal(err)
		}
		other, err := durable.NewCluster(mgr, configs[1], there, func(o *cluster.Options) { o.Cache = of(p).Cache })
		if err != nil {
			t.Fatal(err)
		}
		end, _ = run(t, mgr)
		return []cluster.Cluster{mgr, other}, end
	}
	sees := func(clusters []cluster.Cluster, want string) {
		t.Helper()
		var got string
		defer func() {
			if t.Failed() {
				t.Log(got)
			}
		}()
		eventually(t, "the caches have "+want, func() bool {
			counts := []int{}
			for _, c := range clusters {
				for _, l := range []client.ObjectList{&corev1.ConfigMapList{}, list(widgets)} {
					if err := c.GetCache().List(t.Context(), l); err != nil {
						got = err.Error()
						return false
					}
					counts = append(counts, meta.LenList(l))
				}
			}
			got = fmt.Sprint(counts)
			return got == want
		})
	}

	clusters, end := start()
	sees(clusters, "[8 8 1 1]")
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		l.Lose()
	}
	clusters, end = start()
	sees(clusters, "[8 8 1 1]")
	if err := far.Delete(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	p.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.ns[0], Name: "more", Labels: only.Labels}})
	sees(clusters, "[8 8 1 1]")
	for _, l := range links {
		l.Restore()
	}
	sees(clusters, "[9 8 1 0]")
	if err := end(); err != nil {
		t.Fatal(err)
	}
}
