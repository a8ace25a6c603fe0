package live_test

import (
	"context"
	"fmt"
	"log"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/exampletest"
)

// A program serves its file to tools of the same user, and a tool asks it for objects
// while it runs.
func ExampleDial() {
	cluster := exampletest.Start()
	defer cluster.End()
	db, err := boltstore.Open(cluster.Path(), boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	source := boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}
	store, err := db.Claim(boltstore.Claim{Source: source, Example: &corev1.ConfigMap{}}) // as an informer does
	if err != nil {
		log.Fatal(err)
	}
	defer store.Release()
	if err := store.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}}); err != nil {
		log.Fatal(err)
	}
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
	err = tool.Objects(context.Background(), live.Query{Source: source}, func(o *unstructured.Unstructured) error {
		fmt.Println(o.GetKind(), o.GetNamespace(), o.GetName())
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	// Output:
	// ConfigMap web a
}
