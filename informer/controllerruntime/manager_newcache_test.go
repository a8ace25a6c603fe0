package controllerruntime

import (
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewake/kubewake/informer"
)

// TestNewCacheWithoutTheFile: a NewCache that drops the NewInformer that it is given makes a
// cache in memory. The log and the metric say so once. With Strict its reads are errors.
func TestNewCacheWithoutTheFile(t *testing.T) {
	sim := shop(t, "a")
	for _, strict := range []bool{false, true} {
		for name, drops := range map[string]bool{"drops it": true, "keeps it": false} {
			o := options()
			o.NewCache = func(cfg *rest.Config, given cache.Options) (cache.Cache, error) {
				own := cache.Options{Scheme: given.Scheme, Mapper: given.Mapper, HTTPClient: given.HTTPClient}
				if !drops {
					own.NewInformer = given.NewInformer
				}
				return cache.New(cfg, own)
			}
			mgr, err := NewManager(sim.RESTConfig(), o,
				File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: informer.Options{Strict: strict}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := started(t, mgr)
			var maps corev1.ConfigMapList
			_, informs := mgr.GetCache().GetInformer(ctx, &corev1.ConfigMap{})
			_, byKind := mgr.GetCache().GetInformerForKind(ctx, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
			for what, err := range map[string]error{
				"List": mgr.GetClient().List(ctx, &maps),
				"Get": mgr.GetClient().Get(ctx, client.ObjectKey{Namespace: "default", Name: "a"},
					&corev1.ConfigMap{}),
				"GetInformer":        informs,
				"GetInformerForKind": byKind,
			} {
				if refused := err != nil && strings.Contains(err.Error(), "NewInformer"); refused != (drops &&
					strict) || !refused && err != nil {
					t.Errorf("%s, strict %v: %s: %v", name, strict, what, err)
				}
			}
			fell := FileOf(mgr).Fallbacks()
			if drops != (len(fell) == 1) || drops &&
				(fell[0].Count != 1 || fell[0].Strict != strict || !strings.Contains(fell[0].Reason, "NewInformer")) {
				t.Errorf("%s, strict %v: fallbacks %+v", name, strict, fell)
			}
			end()
		}
	}
}
