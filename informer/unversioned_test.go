package informer

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// TestMaxStalenessWithoutVersions: what a server without versions has confirmed counts,
// too. What was purged does not.
func TestMaxStalenessWithoutVersions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	for i, tc := range []struct {
		err       error
		staleness time.Duration
		synced    bool
	}{
		{nil, 0, true},
		{errors.New("no link"), time.Hour, true},
		{errors.New("no link"), -1, true},
		{errors.New("no link"), time.Nanosecond, false},
	} {
		db, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{}, 1000)
		lw := &cache.ListWatch{
			ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
				asked <- struct{}{}
				return &corev1.ConfigMapList{Items: []corev1.ConfigMap{*cm("a")}}, tc.err
			},
			WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), tc.err },
		}
		inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{MaxStaleness: tc.staleness,
			Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		<-asked
		if tc.synced {
			eventually(t, fmt.Sprint(i, " synced"), inf.HasSynced)
		} else if inf.HasSynced() {
			t.Error(i, "synced")
		}
		if n := len(inf.GetStore().List()); n != 1 && i > 0 {
			t.Errorf("%d: %d objects", i, n)
		}
		cancel()
		<-done
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}
