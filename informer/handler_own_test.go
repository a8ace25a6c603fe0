package informer

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// listOnly is a ListerWatcher that client-go lists.
type listOnly struct{ cache.ListerWatcher }

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

// tellings are the calls of a handler: "put o1 101", "gone o1 102".
type tellings struct {
	mu  sync.Mutex
	all []string
}

func (h *tellings) note(what string, obj any) {
	if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = d.Obj
	}
	o := obj.(*corev1.ConfigMap)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, fmt.Sprint(what, " ", o.Name, " ", o.ResourceVersion))
}

func (h *tellings) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.all)
}

func (h *tellings) handler() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { h.note("put", obj) },
		UpdateFunc: func(_, obj any) { h.note("put", obj) },
		DeleteFunc: func(obj any) { h.note("gone", obj) },
	}
}

func (h *tellings) durable() DurableHandler {
	return DurableHandlerFunc(func(_ context.Context, e Event) error {
		each(e, func(typ cache.DeltaType, obj any) {
			h.note(map[bool]string{true: "gone", false: "put"}[typ == cache.Deleted], obj)
		})
		return nil
	})
}

// answered changes an object on the server and has each store learn that before
// a watch is.
func (s *modelServer) answered(do string, key int, write func(e watch.Event)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := len(s.log)
	s.changeLocked(do, key)
	for _, e := range s.log[from:] {
		write(e)
	}
	s.cond.Broadcast()
}

// storeAnswer stores the server's answer, as an optimistic controller does.
func storeAnswer(i cache.Store, e watch.Event) error {
	switch e.Type {
	case watch.Added:
		return i.Add(e.Object)
	case watch.Deleted:
		return i.Delete(e.Object)
	}
	return i.Update(e.Object)
}

// TestToldOfOwnWrites: handlers are told the server's changes, like client-go's, even if
// the program has stored them first, and across restarts.
func TestToldOfOwnWrites(t *testing.T) {
	s := newModelServer()
	stock := cache.NewSharedIndexInformer(listOnly{s.listWatch()}, &corev1.ConfigMap{}, 0, cache.Indexers{})
	stop := make(chan struct{})
	var running sync.WaitGroup
	defer running.Wait()
	defer close(stop)
	var want, plain, durable tellings
	defer func() {
		if t.Failed() {
			t.Logf("client-go: %q\nplain: %q\ndurable: %q", want.take(), plain.take(), durable.take())
		}
	}()
	if _, err := stock.AddEventHandler(want.handler()); err != nil {
		t.Fatal(err)
	}
	running.Go(func() { stock.Run(stop) })
	eventually(t, "client-go's informer has synced", stock.HasSynced)
	path := filepath.Join(t.TempDir(), "f.db")
	live := func() (*Informer, func()) {
		t.Helper()
		db, err := boltstore.Open(path, boltstore.Options{Durability: boltstore.DurabilityProcess})
		if err != nil {
			t.Fatal(err)
		}
		inf, err := NewSharedIndexInformer(db, s.listWatch(), &corev1.ConfigMap{},
			Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddEventHandler(plain.handler()); err != nil {
			t.Fatal(err)
		}
		if _, err := inf.AddDurableHandler("d", durable.durable(), DurableOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); inf.RunWithContext(ctx) }()
		eventually(t, "synced", inf.HasSynced)
		return inf, func() {
			cancel()
			<-done
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	inf, end := live()
	for i, do := range []string{"create", "update", "update", "delete", "create", "recreate", "update", "create", "delete", "create"} {
		s.answered(do, i%2, func(e watch.Event) {
			for _, store := range []cache.Store{stock.GetStore(), inf.GetStore()} {
				if err := storeAnswer(store, e); err != nil {
					t.Error(err)
				}
			}
		})
		eventually(t, "told "+do, func() bool {
			return slices.Equal(want.take(), plain.take()) && slices.Equal(want.take(), durable.take()) && len(want.take()) > i
		})
	}
	// Written in one life, told in the next.
	before := len(durable.take())
	end()
	inf, end = live()
	s.mu.Lock()
	s.changeLocked("update", 1)
	e := s.log[len(s.log)-1]
	if err := inf.GetStore().Update(e.Object); err != nil {
		t.Error(err)
	}
	end() // the watch has not been told
	s.mu.Unlock()
	_, end = live()
	defer end()
	eventually(t, "told in the next life", func() bool {
		told := durable.take()[before:]
		return slices.Equal(told, want.take()[before:]) && len(told) == 1
	})
}
