package boltstore

import (
	"fmt"
	"runtime"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/podgen"
)

// TestResidentSize: a source's count for its objects in memory is close to their real
// size.
func TestResidentSize(t *testing.T) {
	const objects = 300
	pods := podgen.New(1)
	pod := func(i int) kruntime.Object {
		p := pods.Pod(i)
		p.ResourceVersion = fmt.Sprint(i + 1)
		return p
	}
	small := func(i int) kruntime.Object {
		return configMap(fmt.Sprint("ns", i%20), fmt.Sprint("small", i), i+1, map[string]string{"a": "b"})
	}
	loose := func(o kruntime.Object, kind string) kruntime.Object {
		m, err := kruntime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		m["apiVersion"], m["kind"] = "v1", kind
		return &unstructured.Unstructured{Object: m}
	}
	podType, mapType := metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}
	for name, c := range map[string]struct {
		example kruntime.Object
		form    Form
		object  func(i int) kruntime.Object
	}{
		"pods":        {&corev1.Pod{}, FormTyped, pod},
		"config maps": {&corev1.ConfigMap{}, FormTyped, small},
		"unstructured pods": {loose(&corev1.Pod{}, "Pod"), FormUnstructured, func(i int) kruntime.Object {
			return loose(pod(i), "Pod")
		}},
		"unstructured config maps": {loose(&corev1.ConfigMap{}, "ConfigMap"), FormUnstructured,
			func(i int) kruntime.Object { return loose(small(i), "ConfigMap") }},
		"metadata of pods": {&metav1.PartialObjectMetadata{TypeMeta: podType}, FormMetadata,
			func(i int) kruntime.Object {
				return &metav1.PartialObjectMetadata{TypeMeta: podType, ObjectMeta: pod(i).(*corev1.Pod).ObjectMeta}
			}},
		"metadata of config maps": {&metav1.PartialObjectMetadata{TypeMeta: mapType}, FormMetadata,
			func(i int) kruntime.Object {
				meta := small(i).(*corev1.ConfigMap).ObjectMeta
				return &metav1.PartialObjectMetadata{TypeMeta: mapType, ObjectMeta: meta}
			}},
	} {
		for _, compression := range []Compression{CompressionNone, CompressionZstd} {
			t.Run(fmt.Sprint(name, " ", compression), func(t *testing.T) {
				path, src := testPath(t), configMaps
				src.Form = c.form
				o := Options{Durability: DurabilityProcess, Compression: compression, ObjectMemory: 1 << 30}
				claim := Claim{Source: src, Example: c.example,
					Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}}
				db := openTest(t, path, o)
				var list []kruntime.Object
				for i := range objects {
					list = append(list, c.object(i))
				}
				relist(t, claimTest(t, db, claim), "9000", RelistOptions{}, list, 100)
				closeTest(t, db)
				list = nil
				o.ObjectMemory = -1
				db = openTest(t, path, o)
				claimTest(t, db, claim).List()
				before := liveHeap()
				closeTest(t, db)
				o.ObjectMemory = 1 << 30
				db = openTest(t, path, o)
				s := claimTest(t, db, claim)
				r := loadedInMemory(t, s)
				heap := int64(liveHeap() - before)
				t.Logf("%d bytes a record, %d counted, %d in the heap: estimated %.2f",
					int64(s.metaNow().Bytes)/objects, r.size/objects, heap/objects, float64(r.size)/float64(heap))
				if r.size < heap*3/4 || r.size > heap*7/4 {
					t.Error("not near")
				}
			})
		}
	}
}

func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
