//go:build unix

package informer

import (
	"context"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"syscall"
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
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ runtime.Object, err error) { b.Error(err) }})
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
	first := page[0].(*corev1.Pod).Namespace + "/pod-00000"
	clear(page) // a program that restarts does not have them
	s.Release()
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
			<-ctx.Done() // no answer: the handler is told from the file alone
			return nil, ctx.Err()
		},
		WatchFuncWithContext: func(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}
	for name, memory := range map[string]int64{"file": 8 << 20, "memory": 2 << 30} {
		b.Run(name, func(b *testing.B) { benchmarkWake(b, n, path, src, lw, first, memory) })
	}
}

func benchmarkWake(
	b *testing.B, n int64, path string, src boltstore.Source, lw cache.ListerWatcher, first string, memory int64,
) {
	b.ReportAllocs()
	for b.Loop() {
		start, used := time.Now(), processorTime()
		db, err := boltstore.Open(path, boltstore.Options{ObjectMemory: memory})
		if err != nil {
			b.Fatal(err)
		}
		inf, err := NewSharedIndexInformer(db, lw, &corev1.Pod{}, Options{Reflector: reflector.Options{Source: &src}})
		if err != nil {
			b.Fatal(err)
		}
		if _, ok, err := inf.GetStore().GetByKey(first); !ok || err != nil {
			b.Fatal(ok, err)
		}
		b.ReportMetric(float64(time.Since(start).Microseconds()), "first-read-µs")
		var told atomic.Int64
		all := make(chan struct{})
		count := cache.ResourceEventHandlerFuncs{AddFunc: func(any) {
			if told.Add(1) == n {
				close(all)
			}
		}}
		if _, err := inf.AddEventHandler(count); err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		<-all
		b.ReportMetric(float64(time.Since(start).Milliseconds()), "replayed-ms")
		b.ReportMetric(float64((processorTime() - used).Milliseconds()), "processor-ms")
		cancel()
		<-done
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// processorTime is the processor time that the process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
