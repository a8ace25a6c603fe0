package informertest_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	metadatafake "k8s.io/client-go/metadata/fake"
	"k8s.io/client-go/tools/cache"
	framework "k8s.io/client-go/tools/cache/testing"

	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/dynamicinformer"
	examplev1 "github.com/kubewake/kubewake/informer/factory/testdata/example/api/example/v1"
	widgetfake "github.com/kubewake/kubewake/informer/factory/testdata/example/clientset/versioned/fake"
	"github.com/kubewake/kubewake/informer/factory/testdata/example/informers/externalversions"
	"github.com/kubewake/kubewake/informer/informertest"
	"github.com/kubewake/kubewake/informer/metadatainformer"
	"github.com/kubewake/kubewake/internal/leaktest"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name}}
}

// told passes on the calls of a handler.
func told() (cache.ResourceEventHandler, chan string) {
	calls := make(chan string, 1000)
	name := func(o any) string {
		k, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if err != nil {
			return err.Error()
		}
		return k
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { calls <- "add " + name(o) },
		UpdateFunc: func(_, o any) { calls <- "update " + name(o) },
		DeleteFunc: func(o any) { calls <- "delete " + name(o) },
	}, calls
}

func next(t *testing.T, calls chan string) string {
	t.Helper()
	select {
	case c := <-calls:
		return c
	case <-time.After(time.Minute):
		t.Fatal("no call")
	}
	return ""
}

// TestClientset: a unit test of a controller over a fake clientset sees the same calls,
// reads and actions over a file.
func TestClientset(t *testing.T) {
	said := map[string][]string{}
	for _, name := range []string{"client-go", "file"} {
		t.Run(name, func(t *testing.T) {
			say := func(format string, args ...any) { said[name] = append(said[name], fmt.Sprintf(format, args...)) }
			client := fake.NewClientset(pod("a"))
			f := informers.NewSharedInformerFactory(client, 0)
			if name == "file" {
				informertest.Wake(t, f, &corev1.Pod{})
			}
			pods := f.Core().V1().Pods()
			handler, calls := told()
			if _, err := pods.Informer().AddEventHandler(handler); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			f.StartWithContext(ctx)
			say("synced %v", f.WaitForCacheSync(ctx.Done()))
			say("%s", next(t, calls))
			for _, change := range []func() error{
				func() error {
					_, err := client.CoreV1().Pods("web").Create(ctx, pod("b"), metav1.CreateOptions{})
					return err
				},
				func() error {
					changed := pod("b")
					changed.Labels = map[string]string{"a": "b"}
					_, err := client.CoreV1().Pods("web").Update(ctx, changed, metav1.UpdateOptions{})
					return err
				},
				func() error { return client.CoreV1().Pods("web").Delete(ctx, "a", metav1.DeleteOptions{}) },
			} {
				if err := change(); err != nil {
					t.Fatal(err)
				}
				say("%s", next(t, calls))
			}
			list, err := pods.Lister().Pods("web").List(labels.Everything())
			say("%d %v", len(list), err)
			stop()
			f.Shutdown()
			var actions []string // list and watch are asked beside the test
			for _, a := range client.Actions() {
				actions = append(actions, a.GetVerb()+" "+a.GetResource().Resource)
			}
			slices.Sort(actions)
			say("%q", actions)
		})
	}
	if !slices.Equal(said["file"], said["client-go"]) {
		t.Errorf("client-go: %q\nfile:      %q", said["client-go"], said["file"])
	}
}

// TestEachFake: each of client-go's fakes works, in one line.
func TestEachFake(t *testing.T) {
	widgets := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	widget := func() *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget",
			"metadata": map[string]any{"namespace": "web", "name": "a"}}}
	}
	for name, start := range map[string]func(t *testing.T) (inf cache.SharedIndexInformer, run func(context.Context)){
		"clientset": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			f := informers.NewSharedInformerFactory(fake.NewClientset(pod("a")), 0)
			informertest.Wake(t, f, &corev1.Pod{})
			return f.Core().V1().Pods().Informer(), func(ctx context.Context) {
				f.StartWithContext(ctx)
				<-ctx.Done()
				f.Shutdown()
			}
		},
		"simple clientset": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			//nolint:staticcheck // many tests use it
			f := informers.NewSharedInformerFactory(fake.NewSimpleClientset(pod("a")), 0)
			informertest.Wake(t, f, &corev1.Pod{})
			return f.Core().V1().Pods().Informer(), func(ctx context.Context) {
				f.StartWithContext(ctx)
				<-ctx.Done()
				f.Shutdown()
			}
		},
		"another project's clientset": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			w := &examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}}
			f := externalversions.NewSharedInformerFactory(widgetfake.NewSimpleClientset(w), 0)
			informertest.Wake(t, f, &examplev1.Widget{})
			return f.Example().V1().Widgets().Informer(), func(ctx context.Context) {
				f.StartWithContext(ctx)
				<-ctx.Done()
				f.Shutdown()
			}
		},
		"dynamic": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
				map[schema.GroupVersionResource]string{widgets: "WidgetList"}, widget())
			f := informertest.Must(dynamicinformer.NewDynamicSharedInformerFactory(client, 0, informertest.Open(t),
				informer.Options{}))
			return f.ForResource(widgets).Informer(), func(ctx context.Context) {
				f.Start(ctx.Done())
				<-ctx.Done()
				f.Shutdown()
			}
		},
		"metadata": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			s := metadatafake.NewTestScheme()
			if err := metav1.AddMetaToScheme(s); err != nil {
				t.Fatal(err)
			}
			client := metadatafake.NewSimpleMetadataClient(s, &metav1.PartialObjectMetadata{
				TypeMeta:   metav1.TypeMeta{APIVersion: "example.com/v1", Kind: "Widget"},
				ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
			f := informertest.Must(metadatainformer.NewSharedInformerFactory(client, 0, informertest.Open(t),
				informer.Options{}))
			return f.ForResource(widgets).Informer(), func(ctx context.Context) {
				f.Start(ctx.Done())
				<-ctx.Done()
				f.Shutdown()
			}
		},
		"controller source": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			source := framework.NewFakeControllerSource()
			source.Add(pod("a"))
			inf := informertest.NewSharedIndexInformer(t, source, &corev1.Pod{}, informer.Options{})
			return inf, inf.RunWithContext
		},
		"controller source of another type": func(t *testing.T) (cache.SharedIndexInformer, func(context.Context)) {
			source := framework.NewFakeControllerSource()
			source.Add(&examplev1.Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}})
			inf := informertest.NewSharedIndexInformer(t, source, &examplev1.Widget{}, informer.Options{})
			return inf, inf.RunWithContext
		},
	} {
		t.Run(name, func(t *testing.T) {
			inf, run := start(t)
			handler, calls := told()
			if _, err := inf.AddEventHandler(handler); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { run(ctx); close(ended) }()
			if c := next(t, calls); c != "add web/a" {
				t.Error(c)
			}
			cache.WaitFor(ctx, "", inf.HasSyncedChecker())
			if keys := inf.GetStore().ListKeys(); !slices.Equal(keys, []string{"web/a"}) {
				t.Errorf("keys %q", keys)
			}
			stop()
			<-ended
		})
	}
}

// TestMany: a suite starts dozens at once, and leaves nothing behind.
func TestMany(t *testing.T) {
	before := leaktest.Ours(nil)
	t.Run("suite", func(t *testing.T) {
		for i := range 24 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				f := informers.NewSharedInformerFactory(fake.NewClientset(pod("a")), 0)
				informertest.Wake(t, f, &corev1.Pod{}, &corev1.ConfigMap{})
				lister := f.Core().V1().Pods().Lister()
				f.StartWithContext(t.Context())
				f.WaitForCacheSync(t.Context().Done())
				if _, err := lister.Pods("web").Get("a"); err != nil {
					t.Error(err)
				}
			})
		}
	})
	leaktest.None(t, "after the suite", before)
}

// TestNotStopped: a test that leaves its informers running passes, as with client-go.
func TestNotStopped(t *testing.T) {
	before := leaktest.Ours(nil)
	stop := make(chan struct{})
	client := fake.NewClientset(pod("a"))
	t.Run("test", func(t *testing.T) {
		f := informers.NewSharedInformerFactory(client, 0)
		informertest.Wake(t, f, &corev1.Pod{})
		pods := f.Core().V1().Pods().Informer()
		f.Start(stop)
		f.WaitForCacheSync(t.Context().Done())
		if len(pods.GetStore().List()) != 1 {
			t.Error("no pod")
		}
	})
	if _, err := client.CoreV1().Pods("web").Create(t.Context(), pod("late"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	close(stop)
	leaktest.None(t, "after informers that outlive their test", before)
}

// TestBurst: a fake's watch panics if 100 of its events wait. Informers over a file take
// them no slower than client-go's.
func TestBurst(t *testing.T) {
	client := fake.NewClientset()
	f := informers.NewSharedInformerFactory(client, 0)
	informertest.Wake(t, f, &corev1.Pod{})
	pods := f.Core().V1().Pods()
	handler, calls := told()
	if _, err := pods.Informer().AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	f.StartWithContext(t.Context())
	f.WaitForCacheSync(t.Context().Done())
	for i := range 90 {
		if _, err := client.CoreV1().Pods("web").Create(t.Context(), pod(fmt.Sprint(i)),
			metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for range 90 {
		next(t, calls)
	}
	if n := len(pods.Informer().GetStore().List()); n != 90 {
		t.Errorf("%d pods", n)
	}
}

// BenchmarkSuite measures the cost of a unit test's file, beside client-go's informers.
func BenchmarkSuite(b *testing.B) {
	for _, name := range []string{"client-go", "file"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				t := &one{TB: b}
				client := fake.NewClientset(pod("a"))
				f := informers.NewSharedInformerFactory(client, 0)
				if name == "file" {
					informertest.Wake(t, f, &corev1.Pod{})
				}
				lister := f.Core().V1().Pods().Lister()
				handler, calls := told()
				if _, err := f.Core().V1().Pods().Informer().AddEventHandler(handler); err != nil {
					b.Fatal(err)
				}
				ctx, stop := context.WithCancel(b.Context())
				f.StartWithContext(ctx)
				f.WaitForCacheSync(ctx.Done())
				if _, err := lister.Pods("web").Get("a"); err != nil {
					b.Fatal(err)
				}
				<-calls
				if _, err := client.CoreV1().Pods("web").Create(ctx, pod("b"), metav1.CreateOptions{}); err != nil {
					b.Fatal(err)
				}
				<-calls
				stop()
				f.Shutdown()
				t.end()
			}
		})
	}
}

// one is a test of its own in a benchmark.
type one struct {
	testing.TB
	ends []func()
}

func (o *one) Cleanup(fn func()) { o.ends = append(o.ends, fn) }

func (o *one) end() {
	for _, fn := range slices.Backward(o.ends) {
		fn()
	}
}
