package reflector

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestSeveralLists: a watch function that watches several lists is not taken for one of
// the first list. Functions of one list are identified, whatever their client decodes,
// and send nothing.
func TestSeveralLists(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	cfg := WrapConfig(sim.RESTConfig())
	json := rest.CopyConfig(cfg)
	json.ContentType = runtime.ContentTypeJSON
	client := kubernetes.NewForConfigOrDie(cfg)
	maps := corev1.SchemeGroupVersion.WithResource("configmaps")
	type opens func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error)
	namespace := func(ns string) opens {
		return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().ConfigMaps(ns).Watch(ctx, o)
		}
	}
	labelled := func(selector string) opens {
		return func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selector
			return client.CoreV1().ConfigMaps("").Watch(ctx, o)
		}
	}
	secrets := func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
		return client.CoreV1().Secrets("").Watch(ctx, o)
	}
	for name, c := range map[string]struct {
		watches []opens
		several bool
	}{
		"one":         {[]opens{namespace("web")}, false},
		"the same":    {[]opens{namespace("web"), namespace("web")}, false},
		"JSON":        {[]opens{kubernetes.NewForConfigOrDie(json).CoreV1().ConfigMaps("web").Watch}, false},
		"dynamic":     {[]opens{dynamic.NewForConfigOrDie(cfg).Resource(maps).Watch}, false},
		"metadata":    {[]opens{metadata.NewForConfigOrDie(cfg).Resource(maps).Watch}, false},
		"namespaces":  {[]opens{namespace("web"), namespace("db")}, true},
		"selectors":   {[]opens{labelled("a=b"), labelled("a=c")}, true},
		"label order": {[]opens{labelled("a=b,c in (e,d)"), labelled("c in (d,e),a=b")}, false},
		"resources":   {[]opens{namespace(""), secrets}, true},
		"three times": {[]opens{namespace("web"), namespace("web"), namespace("db")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			sim.ResetRequests()
			_, _, err := Identify(t.Context(),
				&cache.ListWatch{WatchFuncWithContext: func(ctx context.Context,
					o metav1.ListOptions) (watch.Interface, error) {
					var first watch.Interface
					for _, open := range c.watches {
						w, err := open(ctx, o)
						if err != nil {
							return nil, err
						}
						first = w
					}
					return first, nil
				}}, &corev1.ConfigMap{})
			if errors.Is(err, ErrUnidentified) != c.several || err != nil && !c.several {
				t.Error(err)
			}
			if n := len(sim.Requests()); n > 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
