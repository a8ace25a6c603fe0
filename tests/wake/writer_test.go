package wake

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/podgen"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

var resources = map[string]schema.GroupVersionResource{
	"pods":       {Version: "v1", Resource: "pods"},
	"configmaps": {Version: "v1", Resource: "configmaps"},
	"widgets":    widgets,
}

const namespaces = 5

// writer changes objects at random until it is paused.
type writer struct {
	t   *testing.T
	dyn dynamic.Interface
	md  metadata.Interface
	gen *podgen.Generator
	rnd *rand.Rand
	n   int
	// names of the objects that should exist, by resource
	names  map[string][][2]string
	cancel context.CancelFunc
	done   chan struct{}
	writes int

	indexers cache.Indexers // of the verified objects
	keyset   *seal.Keyset   // of its file, if any
	// verified are hashes of an object's JSON that the file and the server had at the
	// same version.
	verified map[version][32]byte

	mu  sync.Mutex
	had map[string]bool // the versions that the server has had, see wrote
}

// version of an object.
type version struct {
	resource, key string
	uid           types.UID
	rv            string
}

func newWriter(t *testing.T, cfg *rest.Config, seed uint64) *writer {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS, cfg.UserAgent = -1, "writer"
	w := &writer{t: t, dyn: dynamic.NewForConfigOrDie(cfg), md: metadata.NewForConfigOrDie(cfg),
		verified: map[version][32]byte{}, had: map[string]bool{}, gen: podgen.New(seed),
		rnd: rand.New(rand.NewPCG(seed, 3)), names: map[string][][2]string{}}
	for i := range namespaces {
		ns := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace",
			"metadata": map[string]any{"name": namespace(i)}}}
		if _, err := w.dyn.Resource(schema.GroupVersionResource{Version: "v1",
			Resource: "namespaces"}).Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func namespace(i int) string { return fmt.Sprint("ns-", i) }

// fill creates n objects, in several goroutines.
func (w *writer) fill(n int) {
	w.t.Helper()
	kinds := slices.Sorted(maps.Keys(resources))
	objs := make(chan *unstructured.Unstructured)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for o := range objs {
				objects := w.dyn.Resource(resources[resourceOf(o)]).Namespace(o.GetNamespace())
				if err := w.note(objects.Create(w.t.Context(), o, metav1.CreateOptions{})); err != nil {
					w.t.Error(err)
				}
			}
		})
	}
	for i := range n {
		res := kinds[i%len(kinds)]
		o := w.object(res)
		w.names[res] = append(w.names[res], [2]string{o.GetNamespace(), o.GetName()})
		objs <- o
	}
	close(objs)
	wg.Wait()
}

func resourceOf(o *unstructured.Unstructured) string {
	return map[string]string{"Pod": "pods", "ConfigMap": "configmaps", "Widget": "widgets"}[o.GetKind()]
}

// object returns a new object.
func (w *writer) object(resource string) *unstructured.Unstructured {
	w.n++
	o := &unstructured.Unstructured{}
	switch resource {
	case "pods":
		p := w.gen.Pod(w.n)
		p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		// The real server looks service accounts, nodes and priorities up.
		p.Spec.ServiceAccountName, p.Spec.PriorityClassName, p.Spec.Priority = "", "", nil
		p.OwnerReferences, p.UID, p.Status = nil, "", corev1.PodStatus{}
		b, err := json.Marshal(p)
		if err != nil {
			w.t.Error(err)
		}
		if err := json.Unmarshal(b, &o.Object); err != nil {
			w.t.Error(err)
		}
		o.SetManagedFields(nil)
	case "configmaps":
		o.Object = map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"data": map[string]any{"n": fmt.Sprint(w.n), "text": "é\u0000 \u2028 \"quoted\""}}
	case "widgets":
		o.Object = map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
			"spec": map[string]any{"size": int64(w.n), "ratio": 0.5, "whole": 2.0,
				"deep": []any{map[string]any{"x": nil, "y": true}}}}
	}
	o.SetNamespace(namespace(w.n % namespaces))
	o.SetName(fmt.Sprintf("%s-%06d", resource[:3], w.n))
	o.SetLabels(map[string]string{"n": fmt.Sprint(w.n % 7)})
	return o
}

// resume writes in the background until pause.
func (w *writer) resume() {
	ctx, cancel := context.WithCancel(w.t.Context())
	w.cancel, w.done = cancel, make(chan struct{})
	go func() {
		defer close(w.done)
		for ctx.Err() == nil {
			// A server that is being restarted refuses; that is not the point.
			_ = w.write(w.t.Context())
		}
	}()
}

func (w *writer) pause() {
	w.cancel()
	<-w.done
}

func (w *writer) write(ctx context.Context) error {
	w.writes++
	kinds := slices.Sorted(maps.Keys(resources))
	res := kinds[w.rnd.IntN(len(kinds))]
	names := w.names[res]
	dice := w.rnd.IntN(10)
	if dice < 2 || len(names) == 0 {
		o := w.object(res)
		err := w.note(w.dyn.Resource(resources[res]).Namespace(o.GetNamespace()).Create(ctx, o, metav1.CreateOptions{}))
		if err == nil {
			w.names[res] = append(names, [2]string{o.GetNamespace(), o.GetName()})
		}
		return err
	}
	i := w.rnd.IntN(len(names))
	client := w.dyn.Resource(resources[res]).Namespace(names[i][0])
	zero := int64(0)
	switch {
	case dice < 4:
		w.names[res] = slices.Delete(slices.Clone(names), i, i+1)
		return client.Delete(ctx, names[i][1], metav1.DeleteOptions{GracePeriodSeconds: &zero})
	case dice == 4: // the same name with another UID
		// a server that is restarted may refuse either request, or delete without an answer
		w.names[res] = slices.Delete(slices.Clone(names), i, i+1)
		if err := client.Delete(ctx, names[i][1], metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
			return err
		}
		o := w.object(res)
		o.SetNamespace(names[i][0])
		o.SetName(names[i][1])
		err := w.note(client.Create(ctx, o, metav1.CreateOptions{}))
		if err == nil {
			w.names[res] = append(w.names[res], names[i])
		}
		return err
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{"n":"%d"},"annotations":{"wake.test/n":"%d"}}}`, w.rnd.IntN(7),
		w.writes)
	return w.note(client.Patch(ctx, names[i][1], types.MergePatchType, []byte(patch), metav1.PatchOptions{}))
}

// note notes the version that the server has made.
func (w *writer) note(o *unstructured.Unstructured, err error) error {
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.had[fmt.Sprintf("%s %s/%s %s %s", resourceOf(o), o.GetNamespace(), o.GetName(), o.GetUID(),
		o.GetResourceVersion())] = true
	return nil
}

// marker sorts after the names of all other objects.
const marker = "z-marker"

// mark replaces one object of each resource and returns the lines that a
// handler that has been told of everything must have written. The objects are the last
// ones in the file's order: a replay that is under way tells them after all others.
func (w *writer) mark() []string {
	w.t.Helper()
	var lines []string
	for _, res := range slices.Sorted(maps.Keys(resources)) {
		o := w.object(res)
		o.SetName(marker)
		o.SetNamespace(namespace(namespaces - 1))
		client := w.dyn.Resource(resources[res]).Namespace(o.GetNamespace())
		zero := int64(0)
		w.insist(func() error {
			err := client.Delete(w.t.Context(), marker, metav1.DeleteOptions{GracePeriodSeconds: &zero})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return err
		})
		w.insist(func() error {
			made, err := client.Create(w.t.Context(), o, metav1.CreateOptions{})
			if err = w.note(made, err); err == nil {
				lines = append(lines, fmt.Sprintf(" %s %s/%s %s %s\n", res, o.GetNamespace(), marker, made.GetUID(),
					made.GetResourceVersion()))
			}
			return err
		})
	}
	return lines
}

// insist repeats requests that a starting server may refuse.
func (w *writer) insist(do func() error) {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		err := do()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			w.t.Fatal(err)
		}
	}
}
