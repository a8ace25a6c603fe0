package informertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/informer/informertest"
)

// TestBubbles: unit tests run in synctest bubbles, one after the other in one process. After
// synctest.Wait handlers have been told everything, as with client-go's informers.
func TestBubbles(t *testing.T) {
	for _, name := range []string{"client-go", "first", "second"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := fake.NewClientset(bigPod("a", ""))
				f := informers.NewSharedInformerFactory(client, 0)
				if name != "client-go" {
					informertest.Wake(t, f, &corev1.Pod{})
				}
				inf := f.Core().V1().Pods().Informer()
				var told []string
				reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc:    func(o any) { told = append(told, "add "+o.(*corev1.Pod).Name) },
					UpdateFunc: func(_, o any) { told = append(told, "update "+o.(*corev1.Pod).Name) },
					DeleteFunc: func(o any) { told = append(told, "delete "+o.(*corev1.Pod).Name) },
				})
				if err != nil {
					t.Fatal(err)
				}
				expect := func(objects int, want ...string) {
					t.Helper()
					synctest.Wait()
					if n := len(inf.GetStore().List()); n != objects || !slices.Equal(told, want) {
						t.Errorf("%d objects, told %q, want %q", n, told, want)
					}
					told = nil
				}
				ctx, stop := context.WithCancel(t.Context())
				f.StartWithContext(ctx)
				if !cache.WaitFor(t.Context(), "", reg.HasSyncedChecker()) {
					t.Fatal("not synced")
				}
				expect(1, "add a")
				pods := client.CoreV1().Pods("web")
				for round := range 3 {
					var adds, updates, deletes []string
					for i := range 20 {
						name := fmt.Sprint("b", round, i)
						adds, updates, deletes = append(adds, "add "+name), append(updates, "update "+name),
							append(deletes, "delete "+name)
						if _, err := pods.Create(t.Context(), bigPod(name, "1"), metav1.CreateOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					expect(21, adds...)
					for i := range 20 {
						if _, err := pods.Update(t.Context(), bigPod(fmt.Sprint("b", round, i), "2"),
							metav1.UpdateOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					expect(21, updates...)
					for i := range 20 {
						if err := pods.Delete(t.Context(), fmt.Sprint("b", round, i),
							metav1.DeleteOptions{}); err != nil {
							t.Fatal(err)
						}
					}
					expect(1, deletes...)
					// on the bubble's clock, which takes no time: whatever waits for a timer has
					// run before the next round
					time.Sleep(time.Hour) // on the bubble's clock, see above
				}
				stop()
				f.Shutdown()
			})
		})
	}
}

// bigPod is large enough to be packed.
func bigPod(name, n string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name,
		Annotations: map[string]string{"n": n, "text": strings.Repeat("text ", 2000)}}}
}

// TestFakeWatcher: the only watch of a fake stays open, however long nothing happens, as with
// client-go's informers. A test that sends to one that was stopped panics.
func TestFakeWatcher(t *testing.T) {
	for _, version := range []string{"", "7"} {
		synctest.Test(t, func(t *testing.T) {
			client, w := fake.NewClientset(), watch.NewFake()
			client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
				return true, &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, nil
			})
			client.PrependWatchReactor("pods", k8stesting.DefaultWatchReactor(w, nil))
			f := informers.NewSharedInformerFactory(client, 0)
			informertest.Wake(t, f, &corev1.Pod{})
			inf := f.Core().V1().Pods().Informer()
			ctx, stop := context.WithCancel(t.Context())
			f.StartWithContext(ctx)
			f.WaitForCacheSyncWithContext(ctx)
			for day := range 3 {
				// on the bubble's clock, which takes no time: a quiet watch would have been given
				// up by then
				time.Sleep(24 * time.Hour) // on the bubble's clock, see above
				w.Add(bigPod(fmt.Sprint(day), ""))
				synctest.Wait()
				if n := len(inf.GetStore().List()); n != day+1 {
					t.Errorf("%d objects on day %d", n, day)
				}
			}
			if n := len(client.Actions()); n != 2 {
				t.Errorf("version %q: %d requests: %v", version, n, client.Actions())
			}
			stop()
			f.Shutdown()
		})
	}
}
