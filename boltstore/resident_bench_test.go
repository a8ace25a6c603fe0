package boltstore

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/codec"
	"github.com/kubewake/kubewake/internal/podgen"
)

// byNode is a typical index of controllers.
func byNode(obj any) ([]string, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		node, _, err := unstructured.NestedString(u.Object, "spec", "nodeName")
		return []string{node}, err
	}
	return []string{obj.(*corev1.Pod).Spec.NodeName}, nil
}

// BenchmarkReads compares reads from memory and from the file with client-go's indexer,
// and with decoding alone. KUBEWAKE_BENCH_PODS says how many pods there are.
func BenchmarkReads(b *testing.B) { benchReads(b, FormTyped) }

// BenchmarkUnstructuredReads is BenchmarkReads for unstructured pods.
func BenchmarkUnstructuredReads(b *testing.B) { benchReads(b, FormUnstructured) }

func benchReads(b *testing.B, form Form) {
	pods := 5000
	if s := os.Getenv("KUBEWAKE_BENCH_PODS"); s != "" {
		pods, _ = strconv.Atoi(s)
	}
	gen := podgen.New(1)
	var list []kruntime.Object
	var some *corev1.Pod
	for i := range pods {
		p := gen.Pod(i)
		p.ResourceVersion = fmt.Sprint(i + 1)
		if i == pods/2 {
			some = p
		}
		if form == FormTyped {
			list = append(list, p)
			continue
		}
		u, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(p)
		if err != nil {
			b.Fatal(err)
		}
		u["apiVersion"], u["kind"] = "v1", "Pod"
		list = append(list, &unstructured.Unstructured{Object: u})
	}
	key := some.Namespace + "/" + some.Name
	benchDecode(b, list)
	fns := func() cache.Indexers {
		return cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "node": byNode}
	}
	stores := map[string]func(b *testing.B) cache.Indexer{
		"client-go": func(*testing.B) cache.Indexer {
			i := cache.NewIndexer(cache.DeletionHandlingMetaNamespaceKeyFunc, fns())
			for _, o := range list {
				_ = i.Add(o)
			}
			return i
		},
	}
	for name, budget := range map[string]int64{"memory": 1 << 30, "file": -1} {
		stores[name] = func(b *testing.B) cache.Indexer {
			db := openTest(b, testPath(b), Options{Durability: DurabilityProcess, ObjectMemory: budget})
			s := claimTest(b, db, Claim{Source: Source{Resource: "pods", Version: "v1", Form: form}, Example: list[0],
				Indexers: fns()})
			relist(b, s, "90000", RelistOptions{}, list, 500)
			if budget > 0 {
				loadedInMemory(b, s)
			}
			return s
		}
	}
	for _, store := range []string{"client-go", "memory", "file"} {
		i, each := stores[store](b), 0
		for _, read := range []struct {
			name string
			fn   func() (int, error)
		}{
			{"Get", func() (int, error) { _, ok, err := i.Get(some); return one(ok), err }},
			{"GetByKey", func() (int, error) { _, ok, err := i.GetByKey(key); return one(ok), err }},
			{"Get of each", func() (int, error) {
				each++
				_, ok, err := i.Get(list[each%len(list)])
				return one(ok), err
			}},
			{"List", func() (int, error) { return len(i.List()), nil }},
			{"ListKeys", func() (int, error) { return len(i.ListKeys()), nil }},
			{"List of a namespace", func() (int, error) {
				l, err := i.Index(cache.NamespaceIndex, &metav1.ObjectMeta{Namespace: some.Namespace})
				return len(l), err
			}},
			{"ByIndex", func() (int, error) { l, err := i.ByIndex("node", some.Spec.NodeName); return len(l), err }},
			{"IndexKeys", func() (int, error) {
				l, err := i.IndexKeys("node", some.Spec.NodeName)
				return len(l), err
			}},
		} {
			b.Run(read.name+"/"+store, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if n, err := read.fn(); err != nil || n == 0 {
						b.Fatal(n, err)
					}
				}
			})
		}
		n := 0
		b.Run("AddIndexers/"+store, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				n++
				name := fmt.Sprint("more", n)
				if err := i.AddIndexers(cache.Indexers{name: byNode}); err != nil {
					b.Fatal(err)
				}
				if s, ok := i.(*Claimed); ok {
					b.StopTimer()
					waitBuilt(b, s, name) // it is built beside other work
					s.builder.building.Lock()
					runtime.GC() // of the build
					s.builder.building.Unlock()
					b.StartTimer()
				}
			}
		})
	}
}

// benchDecode decodes one object, and all objects on all cores.
func benchDecode(b *testing.B, list []kruntime.Object) {
	c, err := codec.For(list[0])
	if err != nil {
		b.Fatal(err)
	}
	payloads := make([][]byte, len(list))
	for i, o := range list {
		if payloads[i], err = c.Append(nil, o); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("Get of each/decode", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if _, err := c.Decode(payloads[i%len(list)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("List/decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			objs := make([]any, len(payloads))
			var wg sync.WaitGroup
			workers := runtime.GOMAXPROCS(0)
			for w := range workers {
				wg.Go(func() {
					for i := w; i < len(payloads); i += workers {
						objs[i], _ = c.Decode(payloads[i])
					}
				})
			}
			wg.Wait()
		}
	})
}

func one(ok bool) int {
	if ok {
		return 1
	}
	return 0
}
