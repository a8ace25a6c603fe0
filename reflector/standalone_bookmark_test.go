package reflector

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestStandaloneBookmarkWithoutVersion: a bookmark that states no version does not hold
// up later events.
func TestStandaloneBookmarkWithoutVersion(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{Window: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	events := watch.NewFake()
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "5"}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return events, nil },
	}
	s, err := NewStandalone(db, lw, &corev1.ConfigMap{},
		Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}})
	if err != nil {
		t.Fatal(err)
	}
	inf := cache.NewSharedIndexInformer(s, &corev1.ConfigMap{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); inf.RunWithContext(ctx) }()
	for i, rv := range []string{"", "0", "7"} {
		events.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: rv}})
		events.Add(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: string(rune('a' + i)),
			ResourceVersion: string(rune('7' + i))}})
		deadline := time.After(time.Minute)
		for len(inf.GetStore().ListKeys()) <= i {
			select {
			case <-time.After(time.Millisecond):
			case <-deadline:
				t.Fatalf("nothing comes after a bookmark of version %q", rv)
			}
		}
	}
	cancel()
	<-done
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
