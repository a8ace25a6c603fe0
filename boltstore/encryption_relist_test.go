package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestRelistAcrossRotation: a rotation waits for a relist under way; when it has
// waited for long the relist is told to begin again.
func TestRelistAcrossRotation(t *testing.T) {
	for _, commitBytes := range []int{4 << 20, 1500} {
		clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
		db := openTest(t, testPath(t), Options{Keyset: sealtest.Keyset(), MaxCommitBytes: commitBytes, Clock: clk})
		s := claimTest(t, db, Claim{Indexers: indexers})
		srv := server{}
		for i := range 100 {
			srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
		}
		relist(t, s, "500", RelistOptions{}, srv.list(), 50)
		begin := func() *Relist {
			r, err := s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
			if err == nil {
				err = r.Page(srv.list())
			}
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		rotate := func() chan error {
			done := make(chan error, 1)
			go func() { done <- db.Rotate() }()
			waits := func() bool {
				db.relists.mu.Lock()
				defer db.relists.mu.Unlock()
				return db.relists.changed != nil
			}
			for deadline := time.Now().Add(time.Minute); !waits(); {
				select {
				case err := <-done:
					t.Fatal("it did not wait", err)
				default:
				}
				if time.Now().After(deadline) {
					t.Fatal("it does not wait")
				}
			}
			return done
		}
		ended := func(done chan error) {
			t.Helper()
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
		}
		srv.set(configMap("ns", "cm000", 501, nil))
		one := begin()
		done := rotate()
		other := claimTest(t, db, Claim{Source: Source{Version: "v1", Resource: "configmaps", Namespace: "x", Form: FormTyped}})
		relist(t, other, "501", RelistOptions{}, nil, 50) // nor do others wait for it
		if _, err := one.Commit("502", time.Now()); err != nil {
			t.Fatal(err)
		}
		ended(done)
		if db.replaced.Load() != 1 {
			t.Fatal("not rotated")
		}
		srv.set(configMap("ns", "cm001", 503, nil))
		r := begin()
		done = rotate()
		clk.Step(relistPatience)
		ended(done)
		if _, err := r.Commit("504", time.Now()); !errors.Is(err, ErrReplaced) {
			t.Fatal(err)
		}
		r.Abort()
		relist(t, s, "504", RelistOptions{}, srv.list(), 50)
		sameObjects(t, "after", srv.anys(), s.List())
		if err := db.Rotate(); err != nil { // nothing is counted any more
			t.Fatal(err)
		}
		// Whoever waits does not outlive the file.
		begin()
		done = rotate()
		db.cancel()
		select {
		case err := <-done:
			if !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		case <-time.After(time.Minute):
			t.Fatal("it does not end")
		}
	}
}

// BenchmarkSeal: what encryption costs a commit of 100 pods, and a read.
func BenchmarkSeal(b *testing.B) {
	gen := podgen.New(1)
	const n = 2000
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = gen.Pod(i)
	}
	for _, mode := range []string{"plain", "encrypted"} {
		o := Options{Durability: DurabilityProcess, HotBytes: 1, FlushInterval: time.Hour}
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
		s.Attach(p)
		rv := 1
		b.Run("commit100/"+mode, func(b *testing.B) {
			b.ReportMetric(float64(st.Size())/n, "file-bytes/object")
			for b.Loop() {
				batch := &Batch{}
				for i := range 100 {
					rv++
					pod := *pods[rv%n]
					pod.ResourceVersion = fmt.Sprint(rv)
					c, err := s.Prepare(cache.Updated, &pod)
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
