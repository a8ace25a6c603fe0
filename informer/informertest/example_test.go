package informertest_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/informer/informertest"
)

// With one more line, a unit test over a fake clientset runs over a temporary file.
func ExampleWake() {
	test := func(t testing.TB) {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
		f := informers.NewSharedInformerFactory(client, 0)
		informertest.Wake(t, f, &corev1.Pod{})
		pods := f.Core().V1().Pods().Lister()

		ctx, stop := context.WithCancel(context.Background())
		defer f.Shutdown()
		defer stop()
		f.StartWithContext(ctx)
		f.WaitForCacheSync(ctx.Done())
		got, err := pods.Pods("web").List(labels.Everything())
		fmt.Println(len(got), err)
	}
	run(test) // as go test does
	// Output:
	// 1 <nil>
}

// To test a restart, wake one factory after the other over the same file. The second one
// is told the delete that came between them.
func ExampleOpen() {
	test := func(t testing.TB) {
		client := fake.NewClientset(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
		db := informertest.Open(t)
		deleted := make(chan string, 1)
		start := func() (stop func()) {
			f := informers.NewSharedInformerFactory(client, 0)
			if err := factory.Wake(f, db, factory.Options{}, &corev1.Pod{}); err != nil {
				t.Fatal(err)
			}
			handler, err := f.Core().V1().Pods().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
				DeleteFunc: func(o any) { // a cache.DeletedFinalStateUnknown
					key, _ := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
					deleted <- key
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(context.Background())
			f.StartWithContext(ctx)
			cache.WaitFor(ctx, "", handler.HasSyncedChecker())
			return func() { end(); f.Shutdown() }
		}
		start()()
		if err := client.CoreV1().Pods("web").Delete(context.Background(), "a", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		stop := start()
		defer stop()
		fmt.Println("deleted while it was down:", <-deleted)
	}
	run(test)
	// Output:
	// deleted while it was down: web/a
}

// run calls test with a minimal testing.TB.
func run(test func(testing.TB)) {
	t := &running{}
	test(t)
	for _, fn := range slices.Backward(t.ends) {
		fn()
	}
}

type running struct {
	testing.TB
	ends []func()
}

func (*running) Helper()             {}
func (*running) Fatal(args ...any)   { log.Fatal(args...) }
func (*running) Log(args ...any)     { log.Print(args...) }
func (r *running) Cleanup(fn func()) { r.ends = append(r.ends, fn) }

func (r *running) TempDir() string {
	dir, err := os.MkdirTemp("", "example-")
	if err != nil {
		log.Fatal(err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			log.Fatal(err)
		}
	})
	return dir
}
