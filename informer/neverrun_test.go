package informer

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestNeverRun: an informer that is never run does not keep its file from being
// closed; what the program has stored is in the file.
func TestNeverRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	o := Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}}
	for life := range 2 {
		db, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		inf, err := NewSharedIndexInformer(db, newModelServer().listWatch(), &corev1.ConfigMap{}, o)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{}); err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddDurableHandler("d", DurableHandlerFunc(func(context.Context, Event) error { return nil }), DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		if n := len(inf.GetStore().List()); n != life {
			t.Fatalf("%d objects in life %d", n, life)
		}
		if err := inf.GetStore().Add(cm("o")); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := inf.GetStore().Add(cm("late")); err == nil {
			t.Fatal("a write to a closed file is no error")
		}
	}
}
