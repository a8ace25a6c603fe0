package live_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/internal/exampletest"
	"github.com/kubewake/kubewake/reflector"
)

// A program serves its file to tools of the same user, and a tool asks it for an object
// while it runs.
func ExampleDial() {
	cluster := exampletest.Start("a")
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	clients := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cluster.Config()))
	lw := cache.NewListWatchFromClient(clients.CoreV1().RESTClient(), "configmaps", "", fields.Everything())
	inf, err := informer.NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, informer.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		inf.RunWithContext(ctx)
	}()
	defer func() { cancel(); <-ended }()
	cache.WaitForCacheSync(ctx.Done(), inf.HasSynced)
	server, err := live.Serve(db, live.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	tool, err := live.Dial(cluster.Path()) // in another process
	if err != nil {
		log.Fatal(err)
	}
	defer tool.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://file/api/v1/namespaces/web/configmaps/a", nil)
	if err != nil {
		log.Fatal(err)
	}
	resp, err := tool.API(req, apifile.Options{}, false)
	if err != nil {
		log.Fatal(err)
	}
	defer resp.Body.Close()
	var o corev1.ConfigMap
	if err := json.NewDecoder(resp.Body).Decode(&o); err != nil {
		log.Fatal(err)
	}
	fmt.Println(o.Kind, o.Namespace, o.Name)
	// Output:
	// ConfigMap web a
}
