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
