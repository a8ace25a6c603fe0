package wake

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/reflector"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// The test binary is the program that is killed, too: with these set it runs
// informers until its end.
const (
	envDB         = "WAKE_CHILD_DB"
	envKubeconfig = "WAKE_CHILD_KUBECONFIG"
	envHandler    = "WAKE_CHILD_HANDLER" // see register
	envDurability = "WAKE_CHILD_DURABILITY"
	envKeyset     = "WAKE_CHILD_KEYSET"
	envChurn      = "WAKE_CHILD_CHURN"
	envBoot       = "WAKE_CHILD_BOOT"
)

func TestMain(m *testing.M) {
	if db := os.Getenv(envDB); db != "" {
		run := child
		if os.Getenv(envContend) != "" {
			run = contend
		}
		if err := run(db, os.Getenv(envKubeconfig)); err != nil {
			fmt.Fprintln(os.Stderr, "child:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if err := flag.Set("test.parallel", "16"); err != nil { // places says how many
		panic(err)
	}
	os.Exit(m.Run())
}

// times is how often a test repeats itself: as an environment variable says, or n times, or
// fewer with -short.
func times(t *testing.T, name string, n, short int) int {
	t.Helper()
	if testing.Short() {
		n = short
	}
	if s := os.Getenv(name); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(name, err)
		}
	}
	return n
}

// places are for as many tests at a time. The longest has its place before the others
// begin: takePlace comes before t.Parallel there, and after it in all others.
var places = make(chan struct{}, 2)

func takePlace(t *testing.T) {
	places <- struct{}{}
	t.Cleanup(func() { <-places })
}

var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

// child keeps pods, config maps and widgets in the file, and writes the calls of its
// handlers to its standard output, a line for each call.
func child(path, kubeconfig string) error {
	cfg, err := childConfig(kubeconfig)
	if err != nil {
		return err
	}
	db, err := boltstore.Open(path, childOptions())
	if err != nil {
		return err
	}
	if os.Getenv(envChurn) != "" {
		go churn(db)
	}
	var wg sync.WaitGroup
	for name, src := range listsOf(cfg) {
		inf, err := informer.NewSharedIndexInformer(db, src.lw, src.example, informer.Options{
			Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "label": byLabel},
		})
		if err != nil {
			return err
		}
		if err := register(inf, name); err != nil {
			return err
		}
		wg.Go(func() { inf.RunWithContext(context.Background()) })
	}
	wg.Wait()
	return db.Close()
}

func childConfig(kubeconfig string) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.UserAgent, cfg.ContentType = -1, "kubewake/test", "application/vnd.kubernetes.protobuf"
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return reflector.WrapConfig(cfg), nil
}

// list is what an informer keeps.
type list struct {
	lw      cache.ListerWatcher
	example runtime.Object
}

func listsOf(cfg *rest.Config) map[string]list {
	core := kubernetes.NewForConfigOrDie(cfg).CoreV1().RESTClient()
	widget := &unstructured.Unstructured{}
	widget.SetGroupVersionKind(widgets.GroupVersion().WithKind("Widget"))
	dyn := dynamic.NewForConfigOrDie(cfg).Resource(widgets)
	return map[string]list{
		"pods":       {cache.NewListWatchFromClient(core, "pods", "", fields.Everything()), &corev1.Pod{}},
		"configmaps": {cache.NewListWatchFromClient(core, "configmaps", "", fields.Everything()), &corev1.ConfigMap{}},
		"widgets": {&cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				return dyn.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				return dyn.Watch(ctx, o)
			},
		}, widget},
	}
}

func byLabel(obj any) ([]string, error) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil, err
	}
	var values []string
	for k, v := range m.GetLabels() {
		values = append(values, k+"="+v)
	}
	return values, nil
}

// teller writes without a buffer, so a line is there when the call is over.
func teller(out io.Writer, resource string) cache.ResourceEventHandler {
	tell := func(what string, obj any) {
		if d, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = d.Obj
		}
		m, err := meta.Accessor(obj)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%s %s %s/%s %s %s\n", what, resource, m.GetNamespace(), m.GetName(), m.GetUID(),
			m.GetResourceVersion())
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell("ADDED", obj) },
		UpdateFunc: func(_, obj any) { tell("MODIFIED", obj) },
		DeleteFunc: func(obj any) { tell("DELETED", obj) },
	}
}
