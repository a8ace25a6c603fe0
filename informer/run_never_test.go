package informer

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// TestNeverRun: an informer that is never run does not keep its file from being closed,
// and the program's writes are in the file.
func TestNeverRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	o := Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}}}
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
		if _, err := inf.AddDurableHandler("d", DurableHandlerFunc(func(context.Context, Event) error {
			return nil
		}), DurableOptions{}); err != nil {
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

// TestWritesAfterTheEnd: the store of an informer that has ended refuses writes
// at once, with the file still open.
func TestWritesAfterTheEnd(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "f.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	inf, err := NewSharedIndexInformer(db, newModelServer().listWatch(), &corev1.ConfigMap{},
		Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
			Form: boltstore.FormTyped}}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	eventually(t, "synced", inf.HasSynced)
	cancel()
	<-done
	for _, write := range []func() error{
		func() error { return inf.GetStore().Add(cm("late")) },
		func() error { return inf.GetStore().Update(cm("late")) },
		func() error { return inf.GetStore().Delete(cm("o")) },
		func() error { return inf.GetStore().Replace(nil, "9") },
		func() error { inf.GetStore().Bookmark("9"); return boltstore.ErrClosed },
	} {
		refused := make(chan error, 1)
		go func() { refused <- write() }()
		select {
		case err := <-refused:
			if !errors.Is(err, boltstore.ErrClosed) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("a write hangs")
		}
	}
}
