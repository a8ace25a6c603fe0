package reflector

import (
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFieldSelectorOrder: a selector of several fields gives the same list in each life,
// in any order of its terms: fields.Set has them in a map's order.
func TestFieldSelectorOrder(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	client := kubernetes.NewForConfigOrDie(WrapConfig(sim.RESTConfig())).CoreV1().RESTClient()
	set := fields.Set{"spec.nodeName": "n=1,2", "status.phase": "Running", "metadata.name": "a"}
	want := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped,
		FieldSelector: `metadata.name=a,spec.nodeName=n\=1\,2,status.phase=Running`}
	for range 50 {
		got, _, err := Identify(t.Context(), cache.NewListWatchFromClient(client, "pods", "", set.AsSelector()),
			&corev1.Pod{})
		if err != nil || got != want {
			t.Fatalf("%+v %v, want %+v", got, err, want)
		}
	}
	one, _, err := Identify(t.Context(),
		cache.NewListWatchFromClient(client, "pods", "", fields.ParseSelectorOrDie("status.phase!=Running")),
		&corev1.Pod{})
	if err != nil || one.FieldSelector != "status.phase!=Running" {
		t.Errorf("%+v %v", one, err)
	}
}

// TestLabelSelectorOrder: the same for labels. The terms of one key are in order, too,
// and the values of one term. The output of labels.Selector stays as it is.
func TestLabelSelectorOrder(t *testing.T) {
	for _, c := range []struct{ want, other string }{
		{"app=shop,tier=web", "tier=web,app=shop"},
		{"app=shop,app-of=web", "app-of=web, app = shop"},
		{"app notin (x,y),app!=a,app!=b", "app!=b,app notin (y,x),app!=a"},
		{"!hidden,tier in (a,b)", "tier in (b,a),!hidden"},
		{"tier>1", "tier > 1"},
		{"no selector=,", "no selector=,"},
	} {
		for _, selector := range []string{c.want, c.other} {
			src, err := sourceOf(&url.URL{Path: "/api/v1/pods",
				RawQuery: url.Values{"labelSelector": {selector}}.Encode()})
			if err != nil || src.LabelSelector != c.want {
				t.Errorf("%q: %q %v, want %q", selector, src.LabelSelector, err, c.want)
			}
			if s, err := labels.Parse(src.LabelSelector); err == nil && strings.Count(c.want, "app") < 3 &&
				s.String() != c.want {
				t.Errorf("labels has %q for %q", s, c.want)
			}
		}
	}
	src, _, err := Options{}.Identify(statesSelector{}, &corev1.Pod{})
	if err != nil || src.LabelSelector != "app=shop,tier=web" {
		t.Errorf("stated: %q %v", src.LabelSelector, err)
	}
}

// statesSelector states its source, as a fake's list does.
type statesSelector struct{ cache.ListerWatcher }

func (statesSelector) StatedSource() boltstore.Source {
	return boltstore.Source{Version: "v1", Resource: "pods", LabelSelector: "tier=web,app=shop"}
}
