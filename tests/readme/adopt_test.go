package readme

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// adopted is a program around the statements of docs/library.md, which replace SHOWN. It prints the
// objects of a factory's lister, then those of an informer that is made as in
// controller-runtime: from a ListWatch whose functions take a context.
const adopted = `package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(reflector.WrapConfig(cfg))
	db, err := boltstore.Open("cache.db", boltstore.Options{})
	if err != nil {
		log.Fatal(err)
	}
	f := informers.NewSharedInformerFactory(client, 0)
	SHOWN
	if err != nil {
		log.Fatal(err)
	}
	lister := f.Core().V1().ConfigMaps().Lister()

	pods := newInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			return client.CoreV1().Pods("").List(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.CoreV1().Pods("").Watch(ctx, o)
		},
	}, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})

	ctx, stop := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	ended := make(chan struct{})
	go func() { pods.RunWithContext(ctx); close(ended) }()
	maps := f.Core().V1().ConfigMaps().Informer()
	synced := cache.WaitForCacheSync(within(30*time.Second), maps.HasSynced, pods.HasSynced)
	kept, err := lister.ConfigMaps("web").List(labels.Everything())
	inWeb, indexErr := pods.GetIndexer().ByIndex(cache.NamespaceIndex, "web")
	fmt.Println("synced:", synced, "config maps:", len(kept), err, "pods:", len(inWeb), indexErr)

	stop()
	f.Shutdown()
	<-ended
	if err := db.Close(); err != nil {
		log.Fatal(err)
	}
}

func within(d time.Duration) <-chan struct{} {
	ctx, _ := context.WithTimeout(context.Background(), d)
	return ctx.Done()
}

`

// wakes is a program around the README's statements. It prints the lister's
// objects when the factory has synced or, with OFFLINE set, at once.
const wakes = `package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		log.Fatal(err)
	}
	SHOWN
	if err != nil {
		log.Fatal(err)
	}
	lister := f.Core().V1().ConfigMaps().Lister()
	ctx, stop := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	if os.Getenv("OFFLINE") == "" {
		f.WaitForCacheSync(ctx.Done())
	}
	kept, err := lister.List(labels.Everything())
	fmt.Println("config maps:", len(kept), err)
	stop()
	f.Shutdown()
}

`

// TestWakeFile: the README's statements wake a factory, whose lister reads the
// file without the server.
func TestWakeFile(t *testing.T) {
	sim, kubeconfig := cluster(t)
	live := program(t, strings.Replace(wakes, "SHOWN", block(t, "README.md", "factory.WakeFile("), 1), kubeconfig)
	first, _ := live()
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	if second, _ := live("OFFLINE=1"); second != first || first != "config maps: 2 <nil>\n" {
		t.Errorf("it printed %q, then %q", first, second)
	}
}

// program builds a program and returns a function that runs it, in a folder of its own.
func program(t *testing.T, source, kubeconfig string) (live func(env ...string) (stdout, stderr string)) {
	t.Helper()
	dir, err := os.MkdirTemp(".", "program-") // inside the tests module, whose requirements it shares
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := build(t, ".", "./"+dir, "program")
	work := t.TempDir()
	return func(env ...string) (stdout, stderr string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin)
		cmd.Dir, cmd.Env = work, append(append(os.Environ(), "KUBECONFIG="+kubeconfig), env...)
		var said strings.Builder
		cmd.Stderr = &said
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v\n%s%s", err, out, said.String())
		}
		return string(out), said.String()
	}
}

// TestFactoryAndManager: the statements of docs/library.md put informers over the file into a
// generated factory and under the calls of a controller-runtime manager, with the server
// and, by MaxStaleness, without it.
func TestFactoryAndManager(t *testing.T) {
	sim, kubeconfig := cluster(t)
	live := program(t, strings.Replace(adopted, "SHOWN", block(t, "docs/library.md", "factory.Wake("), 1), kubeconfig)
	const want = "synced: true config maps: 2 <nil> pods: 2 <nil>\n"
	for _, refused := range []bool{false, true} {
		if err := sim.RefuseConnections(refused); err != nil {
			t.Fatal(err)
		}
		got, said := live()
		if got != want || strings.Contains(said, "memory only") {
			t.Fatalf("with connections refused: %v, it printed\n%s%s", refused, got, said)
		}
	}
}
