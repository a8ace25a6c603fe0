package main

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/podgen"
)

// world is a server, a file, and the calls of a handler over all lives.
type world struct {
	*testing.T
	sim  *kubesim.Server
	path string
	mu   sync.Mutex
	told map[string]string // versions by key
	adds int
	dels int
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, sim: kubesim.New(kubesim.Options{}), path: filepath.Join(t.TempDir(), "pods.sqlite"),
		told: map[string]string{}}
	if _, err := w.sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.sim.Close)
	return w
}

func (w *world) create(from, to int) {
	w.Helper()
	gen := podgen.New(1)
	for i := from; i < to; i++ {
		if err := w.sim.Create(w.named(gen.Pod(i), i)); err != nil {
			w.Fatal(err)
		}
	}
}

func (w *world) named(p *corev1.Pod, i int) *corev1.Pod {
	p.Namespace, p.Name, p.UID = "default", fmt.Sprintf("pod-%04d", i), ""
	return p
}

func (w *world) update(i int) {
	w.Helper()
	pod := w.named(&corev1.Pod{}, i)
	if err := w.sim.Get(pod); err != nil {
		w.Fatal(err)
	}
	podgen.New(1).Mutate(pod, i)
	if err := w.sim.Update(pod); err != nil {
		w.Fatal(err)
	}
}

func (w *world) remove(i int) {
	w.Helper()
	if err := w.sim.Delete(w.named(&corev1.Pod{}, i)); err != nil {
		w.Fatal(err)
	}
}

// live begins a life, and returns a function that ends it, when it has synced.
func (w *world) live() (s *store, end func()) {
	w.Helper()
	client, err := kubernetes.NewForConfig(w.sim.RESTConfig())
	if err != nil {
		w.Fatal(err)
	}
	if s, err = openStore(w.path, podsOf(client)); err != nil {
		w.Fatal(err)
	}
	note := func(obj any) {
		pod := obj.(*corev1.Pod)
		w.told[cache.MetaObjectToName(pod).String()] = pod.ResourceVersion
	}
	s.handler = cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.adds++
			note(obj)
		},
		UpdateFunc: func(old, obj any) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if old.(*corev1.Pod).ResourceVersion == obj.(*corev1.Pod).ResourceVersion {
				w.Error("an update that is none")
			}
			note(obj)
		},
		DeleteFunc: func(obj any) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.dels++
			delete(w.told, cache.MetaObjectToName(obj.(*corev1.Pod)).String())
		},
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan error, 1)
	go func() { done <- s.run(ctx) }()
	select {
	case <-s.synced:
	case err := <-done:
		w.Fatal("the store has ended:", err)
	case <-time.After(30 * time.Second):
		w.Fatal("not synced after 30 s")
	}
	return s, func() {
		w.Helper()
		cancel()
		if err := <-done; err != nil {
			w.Error(err)
		}
		if err := s.db.Close(); err != nil {
			w.Error(err)
		}
	}
}

// equal waits until the file and the handler equal the server.
func (w *world) equal(s *store) {
	w.Helper()
	list, _, err := w.sim.List(&corev1.Pod{})
	if err != nil {
		w.Fatal(err)
	}
	want := map[string]string{}
	for _, o := range list {
		want[o.GetNamespace()+"/"+o.GetName()] = o.GetResourceVersion()
	}
	var file map[string]string
	end := time.Now().Add(30 * time.Second)
	for ; time.Now().Before(end); time.Sleep(time.Millisecond) { // between two looks: the program gives no signal
		file = w.file(s)
		w.mu.Lock()
		equal := maps.Equal(file, want) && maps.Equal(w.told, want)
		w.mu.Unlock()
		if equal {
			return
		}
	}
	w.Fatalf("the server has %d pods, the file %d, the handler was told of %d", len(want), len(file), len(w.told))
}

func (w *world) file(s *store) map[string]string {
	w.Helper()
	keys, err := s.keys()
	if err != nil {
		w.Fatal(err)
	}
	file := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		pod, err := s.get(key)
		if err != nil {
			w.Fatal(err)
		}
		if pod != nil {
			file[key] = pod.ResourceVersion
		}
	}
	return file
}

// TestStore: after a first sync of several pages, changes, restarts, changes meanwhile
// and a version that the server has forgotten, the file and the handler's belief equal
// the server.
func TestStore(t *testing.T) {
	const pods = pageSize + 20
	w := newWorld(t)
	w.create(0, pods)
	s, end := w.live()
	w.equal(s)
	w.create(pods, pods+10)
	w.update(3)
	w.remove(4)
	w.equal(s)
	w.sim.DropConnections()
	w.update(5)
	w.equal(s)
	end()

	w.update(6)
	w.remove(7)
	w.sim.ResetRequests()
	w.adds = 0
	s, end = w.live()
	w.equal(s)
	end()
	if c := kubesim.CostOf(w.sim.Requests()); c.FullReads > 0 {
		t.Errorf("a restart has read all: %+v", c)
	}
	if w.adds != pods+9 {
		t.Errorf("%d adds were told at the restart, the file had %d pods", w.adds, pods+9)
	}

	w.update(8)
	w.remove(9)
	w.sim.Compact()
	w.dels = 0
	s, end = w.live()
	w.equal(s)
	end()
	if w.dels != 1 {
		t.Errorf("%d deletes were told after a list, not 1", w.dels)
	}
}
