package reflector

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestOptionsThatChange: if the list options of a client choose other objects later on,
// their answers do not get into the file, which has the source's. The state says why.
func TestOptionsThatChange(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		create := func(name, app string) {
			if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name,
				Labels: map[string]string{"app": app}}}); err != nil {
				t.Fatal(err)
			}
		}
		create("a1", "a")
		create("b1", "b")
		var app atomic.Value
		app.Store("a")
		f := fixtureWith(t, sim, 0, clock.RealClock{}, Options{}, func(*rest.Config) {},
			func(lw cache.ListerWatcher) cache.ListerWatcher {
				inner := cache.ToListerWatcherWithContext(lw)
				return &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						o.LabelSelector = fmt.Sprint("app=", app.Load())
						return inner.ListWithContext(ctx, o)
					},
					WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
						o.LabelSelector = fmt.Sprint("app=", app.Load())
						return inner.WatchWithContext(ctx, o)
					},
				}
			})
		f.reflect()
		after(time.Minute)
		if keys := f.store.ListKeys(); len(keys) != 1 || keys[0] != "default/a1" {
			t.Fatalf("listed %q", keys)
		}
		for _, expired := range []bool{false, true} {
			app.Store("b")
			sim.DropConnections()
			if expired {
				sim.Compact()
			}
			create(fmt.Sprint("b2", expired), "b")
			create(fmt.Sprint("a2", expired), "a")
			after(10 * time.Minute)
			if told, st := f.takeTold(), f.State(); told != "" || st.Phase != PhaseOffline ||
				!strings.Contains(st.Reason, "app=b") {
				t.Errorf("expired %v: told %q, %s", expired, told, st)
			}
			app.Store("a")
			after(5 * time.Minute)
			if told, st := f.takeTold(), f.State(); told != fmt.Sprint("Added a2", expired) || st.Phase != PhaseLive {
				t.Errorf("expired %v: told %q, %s", expired, told, st)
			}
		}
	})
}

// TestListUnlikeWatch: a client whose list function has a selector that its watch function
// does not have gets what it asks for, as with client-go.
func TestListUnlikeWatch(t *testing.T) {
	warm(t)
	synctest.Test(t, func(t *testing.T) {
		sim := kubesim.New(kubesim.Options{})
		if err := sim.StartPipes(); err != nil {
			t.Fatal(err)
		}
		f := fixtureWith(t, sim, 0, clock.RealClock{}, Options{}, func(*rest.Config) {},
			func(lw cache.ListerWatcher) cache.ListerWatcher {
				inner := cache.ToListerWatcherWithContext(lw)
				return &cache.ListWatch{
					ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
						o.LabelSelector = "app=a"
						return inner.ListWithContext(ctx, o)
					},
					WatchFuncWithContext: inner.WatchWithContext,
				}
			})
		for _, app := range []string{"a", "b"} {
			if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app,
				Labels: map[string]string{"app": app}}}); err != nil {
				t.Fatal(err)
			}
		}
		f.reflect()
		after(time.Minute)
		if keys, st := f.store.ListKeys(), f.State(); len(keys) != 1 || keys[0] != "default/a" ||
			st.Phase != PhaseLive {
			t.Errorf("listed %q, %s", keys, st)
		}
		f.create("c")
		after(time.Second)
		if told := f.takeTold(); told != "Added c" {
			t.Errorf("told %q", told)
		}
	})
}
