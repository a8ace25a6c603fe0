package boltstore

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// BenchmarkSeal measures the cost of encryption for a commit of 100 pods, and for a read.
func BenchmarkSeal(b *testing.B) {
	gen := podgen.New(1)
	const n = 2000
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = gen.Pod(i)
	}
	for _, mode := range []string{"plain", "encrypted"} {
		o := Options{Durability: DurabilityProcess, hotBytes: 1, FlushInterval: time.Hour}
		if mode == "encrypted" {
			o.Keyset = sealtest.Keyset()
		}
		path := filepath.Join(b.TempDir(), "bench.db")
		db, err := Open(path, o)
		if err != nil {
			b.Fatal(err)
		}
		s := claimTest(b, db, Claim{Source: podSource, Example: &corev1.Pod{}, Indexers: podIndexers})
		var all []any
		for _, p := range pods {
			all = append(all, p)
		}
		if err := s.Replace(all, "1"); err != nil {
			b.Fatal(err)
		}
		st, err := os.Stat(path)
		if err != nil {
			b.Fatal(err)
		}
		p := &testProducer{done: make(chan struct{}, 1000)}
		s.Feed.Attach(p)
		rv := 1
		b.Run("commit100/"+mode, func(b *testing.B) {
			b.ReportMetric(float64(st.Size())/n, "file-bytes/object")
			for b.Loop() {
				batch := &Batch{}
				for i := range 100 {
					rv++
					pod := *pods[rv%n]
					pod.ResourceVersion = fmt.Sprint(rv)
					c, err := s.Feed.Prepare(cache.Updated, &pod)
					if err != nil {
						b.Fatal(i, err)
					}
					batch.Changes = append(batch.Changes, c)
				}
				batch.ResourceVersion = fmt.Sprint(rv)
				p.put(batch)
				s.wake(true)
				<-p.done
			}
		})
		i := 0
		b.Run("get/"+mode, func(b *testing.B) {
			for b.Loop() {
				i++
				if o, _, err := s.GetByKey(keyOfObject(pods[i%n])); err != nil || o == nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("list2000/"+mode, func(b *testing.B) {
			for b.Loop() {
				if _, err := s.ListErr(); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("byIndex/"+mode, func(b *testing.B) {
			for b.Loop() {
				i++
				if _, err := s.IndexKeys("node", pods[i%n].Spec.NodeName); err != nil {
					b.Fatal(err)
				}
			}
		})
		s.Release()
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
