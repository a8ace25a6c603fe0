package informer

import (
	"bytes"
	"context"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
)

// TestFilteredWatches: a watch that is wrapped by watch.Filter leaves no goroutine when a
// live source gives it up, as WaitForFresh makes it do. The filter waits for a reader of
// the error that a stopped watch may send.
func TestFilteredWatches(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.create("a")
		client := kubernetes.NewForConfigOrDie(w.config()).CoreV1().ConfigMaps("")
		lw := &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return client.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				in, err := client.Watch(ctx, o)
				if err != nil {
					return nil, err
				}
				return watch.Filter(in, func(e watch.Event) (watch.Event, bool) { return e, true }), nil
			},
		}
		db, err := boltstore.Open(filepath.Join(t.TempDir(), "wake.db"), boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		inf, err := NewSharedIndexInformer(db, lw, &corev1.ConfigMap{}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		filters := func(most int) {
			t.Helper()
			synctest.Wait()
			var all bytes.Buffer
			if err := pprof.Lookup("goroutine").WriteTo(&all, 2); err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(all.String(), "watch.(*filteredWatch).loop("); n > most {
				t.Errorf("%d filters wait, want at most %d", n, most)
			}
		}
		for range 40 {
			after(time.Minute)
			if err := inf.WaitForFresh(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		filters(1)
		cancel()
		<-done
		filters(0)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
