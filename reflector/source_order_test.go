package reflector

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFieldSelectorOrder: a selector of several fields is the same list in each life, in
// whatever order its terms come: fields.Set gives them in that of a map.
func TestFieldSelectorOrder(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	client := kubernetes.NewForConfigOrDie(WrapConfig(sim.RESTConfig())).CoreV1().RESTClient()
	set := fields.Set{"spec.nodeName": "n=1,2", "status.phase": "Running", "metadata.name": "a"}
	want := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped, FieldSelector: `metadata.name=a,spec.nodeName=n\=1\,2,status.phase=Running`}
	for range 50 {
		got, _, err := Identify(t.Context(), cache.NewListWatchFromClient(client, "pods", "", set.AsSelector()), &corev1.Pod{})
		if err != nil || got != want {
			t.Fatalf("%+v %v, want %+v", got, err, want)
		}
	}
	one, _, err := Identify(t.Context(), cache.NewListWatchFromClient(client, "pods", "", fields.ParseSelectorOrDie("status.phase!=Running")), &corev1.Pod{})
	if err != nil || one.FieldSelector != "status.phase!=Running" {
		t.Errorf("%+v %v", one, err)
	}
}
