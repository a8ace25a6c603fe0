package informer

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/leaktest"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestGoroutinesAfterRun: an informer that has run leaves none, also while its
// file stays open, and the next one on the same file works.
func TestGoroutinesAfterRun(t *testing.T) {
	w := newWorld(t)
	w.create("one")
	before := leaktest.Ours(nil)
	db, err := boltstore.Open(w.path, boltstore.Options{Keyset: sealtest.Default()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		inf, err := NewSharedIndexInformer(db, listWatch(w.config()), &corev1.ConfigMap{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		told := make(chan struct{}, 100)
		if _, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { told <- struct{}{} }}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		<-told
		cancel()
		<-done
		leaktest.None(t, "after Run, with the file open,", before)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	leaktest.None(t, "after Close", before)
}
