package reflector

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestServerWithoutFieldSelectors still states its version.
func TestServerWithoutFieldSelectors(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	var cfg *rest.Config
	f := fixtureWith(t, sim, 4, clock.RealClock{}, Options{Confirm: ConfirmBookmark}, func(c *rest.Config) {
		cfg = rest.CopyConfig(c)
	}, func(cache.ListerWatcher) cache.ListerWatcher {
		client := kubernetes.NewForConfigOrDie(WrapConfig(cfg)).CoreV1().RESTClient()
		// It does not overwrite the selector, unlike the other tests' server.
		return cache.NewFilteredListWatchFromClient(client, "configmaps", "", func(*metav1.ListOptions) {})
	})
	f.list()
	f.doubtLink()
	f.create("more")
	f.cost()
	f.sim.FailNext(func(r *http.Request) bool { return r.URL.Query().Get("fieldSelector") != "" }, 1,
		kubesim.Answer(apierrors.NewBadRequest("field label not supported: metadata.name")))
	w := f.watch()
	if ev := f.next(w); ev.Type != watch.Added {
		t.Fatalf("%+v", ev)
	}
	f.costs("asked twice", kubesim.Cost{Questions: 2, Watches: 1, Others: 1, Bytes: 1100})
}
