package reflector

import (
	"context"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// TestVersionZero: a list at version 0 counts as one without a version. Each life reads
// it, and so sees objects that were created and deleted meanwhile.
func TestVersionZero(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{Window: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	names := []string{"a"}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "0"}}
			for _, n := range names {
				list.Items = append(list.Items,
					corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n}})
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			return watch.NewFake(), nil
		},
	}
	for _, now := range [][]string{{"a"}, {"b", "c"}, {"c"}} {
		names = now
		store, err := db.Claim(boltstore.Claim{Source: boltstore.Source{Version: "v1", Resource: "configmaps",
			Form: boltstore.FormTyped}, Example: &corev1.ConfigMap{}})
		if err != nil {
			t.Fatal(err)
		}
		j := fifo.New(store, nil)
		s := New(lw, j, store, &corev1.ConfigMap{}, "", Options{})
		if err := s.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := store.ListKeys(); len(got) != len(now) || j.AcceptedVersion() != "" {
			t.Errorf("%v of %v, at %q", got, now, j.AcceptedVersion())
		}
		j.Close()
		store.Release()
	}
}
