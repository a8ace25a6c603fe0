package informer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// TestMutationDetector: with KUBE_CACHE_MUTATION_DETECTOR a handler that changes an
// object ends the process, as with client-go's informers. So does a reader that changes
// an object in memory. The test runs itself in
// processes of their own, since client-go reads the variable once.
func TestMutationDetector(t *testing.T) {
	if kind := os.Getenv("MUTATES"); kind != "" {
		mutates(t, kind)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for kind, says := range map[string]string{
		"replay": "modified", "change": "modified", "durable": "modified", "read": "modified",
		"panic": "of the handler", "nothing": "",
		"stock replay": "modified", "stock change": "modified", "stock panic": "of the handler", "stock nothing": "",
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, "-test.run=^TestMutationDetector$", "-test.timeout=1m")
			// a panic leaves its files
			cmd.Env = append(os.Environ(), "MUTATES="+kind, "KUBE_CACHE_MUTATION_DETECTOR=true", "TMPDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			if !bytes.Contains(out, []byte(says)) || (err == nil) != (says == "") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

func mutates(t *testing.T, kind string) {
	w := newWorld(t)
	w.create("a")
	touch := func(obj any) { obj.(*corev1.ConfigMap).Data = map[string]string{"mine": "yes"} }
	told := make(chan struct{}, 10)
	kind, stock := strings.CutPrefix(kind, "stock ")
	handler := cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			switch kind {
			case "replay":
				touch(obj)
			case "panic":
				panic("of the handler")
			}
			told <- struct{}{}
		},
		UpdateFunc: func(_, obj any) {
			if kind == "change" {
				touch(obj)
			}
			told <- struct{}{}
		},
	}
	if stock {
		inf := cache.NewSharedIndexInformer(listWatch(w.config()), &corev1.ConfigMap{}, 0, cache.Indexers{})
		if _, err := inf.AddEventHandler(handler); err != nil {
			t.Fatal(err)
		}
		go inf.RunWithContext(t.Context())
		<-told
		w.update("a", "b")
		<-told
		ends(t, kind)
		return
	}
	l := w.live(Options{}, handler)
	if _, err := l.inf.AddDurableHandler("d", DurableHandlerFunc(func(_ context.Context, e Event) error {
		if e.Reset {
			return nil
		}
		if kind == "durable" {
			touch(e.Object)
		}
		told <- struct{}{}
		return nil
	}), DurableOptions{}); err != nil {
		t.Fatal(err)
	}
	l.run().synced().replayed()
	w.update("a", "b")
	for range 4 {
		<-told
	}
	if kind == "read" { // in another life, so that no handler is told of the object
		l.end()
		l = w.live(Options{})
		eventually(t, "in memory", func() bool { return l.inf.Store().State().InMemory })
		objs, err := l.inf.GetIndexer().ByIndex(cache.NamespaceIndex, "default")
		if err != nil || len(objs) != 1 {
			t.Fatal(objs, err)
		}
		touch(objs[0])
	}
	ends(t, kind)
}

func ends(t *testing.T, kind string) {
	if kind != "nothing" {
		<-t.Context().Done() // the detector looks once a second
	}
	fmt.Println("ends")
}
