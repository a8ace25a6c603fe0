package podgen

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

func TestSizes(t *testing.T) {
	const n = 1000
	g := New(1)
	total, least, most := 0, 1<<30, 0
	names, images := map[string]bool{}, map[string]bool{}
	perNamespace := map[string]int{}
	for i := range n {
		p := g.Pod(i)
		data, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		total += len(data)
		least, most = min(least, len(data)), max(most, len(data))
		names[p.Namespace+"/"+p.Name] = true
		images[p.Spec.Containers[0].Image] = true
		perNamespace[p.Namespace]++
		for _, m := range p.ManagedFields {
			if !json.Valid(m.FieldsV1.GetRawBytes()) {
				t.Fatalf("pod %d: managedFields of %s are not JSON", i, m.Manager)
			}
		}
	}
	t.Logf("JSON of %d pods: %d to %d bytes, mean %d", n, least, most, total/n)
	if least < 6_000 || most > 8_192 {
		t.Errorf("JSON sizes %d to %d, want 6,000 to 8,192", least, most)
	}
	if len(names) != n || len(images) < 100 || len(perNamespace) != len(namespaces) {
		t.Errorf("%d names, %d images, %d namespaces", len(names), len(images), len(perNamespace))
	}
}

// Look-alike copies compress 30-fold and more; measurements on them would be better than
// on any real cluster.
func TestCompressesLikeRealPods(t *testing.T) {
	g := New(1)
	list := corev1.PodList{}
	for i := range 500 {
		list.Items = append(list.Items, *g.Pod(i))
	}
	slices.SortFunc(list.Items, func(a, b corev1.Pod) int { // as a server lists them
		return cmp.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	data, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed) // as the API server
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ratio := float64(len(data)) / float64(buf.Len())
	t.Logf("gzip of a list of 500: %d to %d bytes, %.1f-fold", len(data), buf.Len(), ratio)
	if ratio > 12 || ratio < 4 {
		t.Errorf("list of 500 compresses %.1f-fold, want 4 to 12", ratio)
	}
}

func TestDeterministic(t *testing.T) {
	for i := range 50 {
		a, b := New(7).Pod(i), New(7).Pod(i)
		if !equality.Semantic.DeepEqual(a, b) {
			t.Fatalf("pod %d differs between generators of one seed", i)
		}
		if equality.Semantic.DeepEqual(a, New(8).Pod(i)) {
			t.Fatalf("pod %d is the same for another seed", i)
		}
	}
}

func TestMutateAlwaysChanges(t *testing.T) {
	g := New(1)
	p := g.Pod(3)
	for n := range 40 {
		before := p.DeepCopy()
		again := p.DeepCopy()
		g.Mutate(p, n)
		if equality.Semantic.DeepEqual(before, p) {
			t.Fatalf("mutation %d changed nothing", n)
		}
		if g.Mutate(again, n); !equality.Semantic.DeepEqual(again, p) {
			t.Fatalf("mutation %d is not deterministic", n)
		}
		if data, err := json.Marshal(p); err != nil || len(data) > 9_000 {
			t.Fatalf("mutation %d: %d bytes, %v", n, len(data), err)
		}
	}
}

func BenchmarkPod(b *testing.B) {
	g := New(1)
	for i := 0; b.Loop(); i++ {
		g.Pod(i)
	}
}
