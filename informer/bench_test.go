package informer

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/reflector"
)

// BenchmarkWake opens a file of 20,000 pods and tells a handler of each.
func BenchmarkWake(b *testing.B) {
	const n = 20_000
	src := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}
	path := filepath.Join(b.TempDir(), "wake.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		b.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: src, Example: &corev1.Pod{}})
	if err != nil {
		b.Fatal(err)
	}
	r, err := s.BeginRelist(boltstore.RelistOptions{OnError: func(_ runtime.Object, err error) { b.Error(err) }})
	if err != nil {
		b.Fatal(err)
	}
	gen := podgen.New(1)
	page := make([]runtime.Object, n)
	for i := range page {
		p := gen.Pod(i)
		p.Name, p.UID, p.ResourceVersion = fmt.Sprintf("pod-%05d", i), types.UID(fmt.Sprint("uid-", i)), fmt.Sprint(i+1)
		page[i] = p
	}
	start := time.Now()
	if err := r.Page(page); err != nil {
		b.Fatal(err)
	}
	if _, err := r.Commit(fmt.Sprint(n), time.Now()); err != nil {
		b.Fatal(err)
	}
	b.Logf("loaded in %v, %d MB", time.Since(start), db.Size()>>20)
	s.Release()
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(n)}}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) { return watch.NewFake(), nil },
	}
	b.ResetTimer()
	for b.Loop() {
		start := time.Now()
		db, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			b.Fatal(err)
		}
		inf, err := NewSharedIndexInformer(db, lw, &corev1.Pod{}, Options{Reflector: reflector.Options{Source: &src}})
		if err != nil {
			b.Fatal(err)
		}
		if _, ok, err := inf.GetStore().GetByKey(page[0].(*corev1.Pod).Namespace + "/pod-00000"); !ok || err != nil {
			b.Fatal(ok, err)
		}
		b.ReportMetric(float64(time.Since(start).Microseconds()), "first-read-µs")
		var told atomic.Int64
		reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(any) { told.Add(1) }})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		<-reg.HasSyncedChecker().Done()
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "replayed-ms")
		if told.Load() != n {
			b.Fatal(told.Load())
		}
		cancel()
		<-done
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
