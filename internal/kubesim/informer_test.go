package kubesim

import (
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/podgen"
)

// TestStockInformer runs client-go's own informer through the faults that it
// must survive, with writes going on, and compares its end state.
func TestStockInformer(t *testing.T) {
	for name, contentType := range encodings {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time is client-go's backoff
			s := start(t, Options{})
			g := podgen.New(1)
			for i := range 300 {
				check(t, s.Create(g.Pod(i)))
			}
			restore := s.Revision()
			lw := cache.NewListWatchFromClient(clientset(t, s, contentType).CoreV1().RESTClient(), "pods",
				metav1.NamespaceAll, fields.Everything())
			inf := cache.NewSharedIndexInformer(lw, &corev1.Pod{}, 0, cache.Indexers{})
			var wg sync.WaitGroup
			t.Cleanup(wg.Wait)
			wg.Go(func() { inf.RunWithContext(t.Context()) })
			eventually(t, "the informer has synced", inf.HasSynced)

			next := 300
			write := func() {
				for n := range 50 {
					p := g.Pod(n)
					check(t, s.Get(p))
					g.Mutate(p, next+n)
					check(t, s.Update(p))
				}
				check(t, s.Create(g.Pod(next)))
				check(t, s.Delete(g.Pod(next-100)))
				next++
			}
			for _, fault := range []struct {
				name   string
				inject func() error
			}{
				{"none", func() error { return nil }},
				{"drop", func() error { s.DropConnections(); return nil }},
				{"restart", func() error { return s.Restart(RestartOptions{Initializing: 1}) }},
				{"end", func() error { s.EndWatches(nil); return nil }},
				{"rewind", func() error { return s.Rewind(restore) }},
				{"compact and drop", func() error { s.Compact(); s.DropConnections(); return nil }},
			} {
				write()
				eventuallyEqual(t, s, inf, "writes before "+fault.name)
				seen := s.Revision()
				check(t, fault.inject())
				if fault.name == "rewind" {
					// The informer's watch from the lost future is silent. It
					// recovers only if the server restarts beyond that.
					for s.Revision() <= seen {
						write()
					}
					check(t, s.Restart(RestartOptions{}))
				}
				write()
				eventuallyEqual(t, s, inf, fault.name)
			}
		})
	}
}

func eventuallyEqual(t *testing.T, s *Server, inf cache.SharedIndexInformer, after string) {
	t.Helper()
	objs, _, err := s.List(&corev1.Pod{})
	check(t, err)
	eventually(t, "the informer equals the server after "+after, func() bool {
		if len(inf.GetStore().ListKeys()) != len(objs) {
			return false
		}
		for _, o := range objs {
			got, ok, _ := inf.GetStore().GetByKey(o.GetNamespace() + "/" + o.GetName())
			if !ok || got.(*corev1.Pod).ResourceVersion != o.GetResourceVersion() {
				return false
			}
			if !equality.Semantic.DeepEqual(got, o) {
				t.Fatalf("after %s: %s differs at the same version", after, o.GetName())
			}
		}
		return true
	})
}

func BenchmarkSeedAndList(b *testing.B) {
	const n = 20_000
	s := New(Options{})
	defer s.Close()
	must(s.Start())(b)
	g := podgen.New(1)
	begin := time.Now()
	for i := range n {
		check(b, s.Create(g.Pod(i)))
	}
	b.ReportMetric(time.Since(begin).Seconds(), "s/seed")
	for name, accept := range encodings {
		for _, enc := range []string{"identity", "gzip"} {
			b.Run(fmt.Sprintf("%s-%s", name, enc), func(b *testing.B) {
				for b.Loop() {
					_, body := get(b, s, "/api/v1/pods", "Accept", accept, "Accept-Encoding", enc)
					b.SetBytes(int64(len(body)))
				}
			})
		}
	}
}
