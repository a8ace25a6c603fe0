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

// TestStandaloneWithoutVersions: a stock informer over a file has the objects of a server
// that states no version, or 0, even in the next life.
func TestStandaloneWithoutVersions(t *testing.T) {
	for _, rv := range []string{"", "0"} {
		t.Run("version "+rv, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "test.db")
			for _, objects := range [][]string{{"a"}, {"a", "b"}, {"b"}} {
				lw := &cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						l := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: rv}}
						for _, name := range objects {
							l.Items = append(l.Items, corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}})
						}
						return l, nil
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						return watch.NewFake(), nil
					},
				}
				db, err := boltstore.Open(path, boltstore.Options{})
				if err != nil {
					t.Fatal(err)
				}
				s, err := NewStandalone(db, lw, &corev1.ConfigMap{},
					Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
						Form: boltstore.FormTyped}})
				if err != nil {
					t.Fatal(err)
				}
				inf := cache.NewSharedIndexInformer(s, &corev1.ConfigMap{}, 0, nil)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				done := make(chan struct{})
				go func() { defer close(done); inf.RunWithContext(ctx) }()
				if !cache.WaitForCacheSync(ctx.Done(), inf.HasSynced) {
					t.Fatal("it does not sync")
				}
				for _, name := range objects {
					if _, there, err := inf.GetStore().GetByKey(name); !there || err != nil {
						t.Errorf("%v: %s is not there, %v", objects, name, err)
					}
				}
				if n := len(inf.GetStore().ListKeys()); n != len(objects) {
					t.Errorf("%d objects, not %v", n, objects)
				}
				cancel()
				<-done
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
