package factory_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// TestMain sets process-wide values before any goroutine reads them.
func TestMain(m *testing.M) {
	// one of them sleeps until after the last error, which is ages ahead of a bubble's clock
	utilruntime.ErrorHandlers = nil
	os.Exit(m.Run())
}

// TestTweaks: whatever a factory's list options set for the request itself, such as a
// version or timeout, its informers read all objects, follow their changes, and wake
// within 20 s. A quiet source is confirmed about once a minute, with few requests.
func TestTweaks(t *testing.T) {
	warm := simulator(t)
	// what the process has but one of must not belong to a bubble
	wakeTweaked(t, warm, nil, filepath.Join(t.TempDir(), "test.db"), func(informers.SharedInformerFactory) {})
	for name, c := range map[string]struct {
		tweak func(*metav1.ListOptions)
		most  int           // requests in 20 quiet minutes
		age   time.Duration // of the last confirmation, after these and a change elsewhere
	}{
		"none":              {nil, 15, 2 * time.Minute},
		"timeout":           {func(o *metav1.ListOptions) { o.TimeoutSeconds = new(int64(1800)) }, 15, 2 * time.Minute},
		"timeout of 20 s":   {func(o *metav1.ListOptions) { o.TimeoutSeconds = new(int64(20)) }, 140, 2 * time.Minute},
		"timeout of 1 s":    {func(o *metav1.ListOptions) { o.TimeoutSeconds = new(int64(1)) }, 2450, 2 * time.Hour},
		"no timeout":        {func(o *metav1.ListOptions) { o.TimeoutSeconds = nil }, 15, 2 * time.Minute},
		"timeout of 0":      {func(o *metav1.ListOptions) { o.TimeoutSeconds = new(int64(0)) }, 15, 2 * time.Minute},
		"version 0":         {func(o *metav1.ListOptions) { o.ResourceVersion = "0" }, 15, 2 * time.Minute},
		"no version":        {func(o *metav1.ListOptions) { o.ResourceVersion = "" }, 15, 2 * time.Minute},
		"no options":        {func(o *metav1.ListOptions) { *o = metav1.ListOptions{} }, 15, 2 * time.Hour},
		"two at a time":     {func(o *metav1.ListOptions) { o.Limit = 2 }, 15, 2 * time.Minute},
		"without bookmarks": {func(o *metav1.ListOptions) { o.AllowWatchBookmarks = false }, 15, 2 * time.Hour},
		"selector": {func(o *metav1.ListOptions) {
			o.FieldSelector = "metadata.namespace=web"
		}, 15, 2 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{HistorySize: 100_000})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				defer sim.Close()
				path := filepath.Join(t.TempDir(), "test.db")
				for range 2 {
					wakeTweaked(t, sim, c.tweak, path, func(f informers.SharedInformerFactory) {
						synctest.Wait() // a request on its way belongs to the start
						sim.ResetRequests()
						// on the bubble's clock, which takes no time: requests of a quiet source
						// are counted
						time.Sleep(20 * time.Minute) // on the bubble's clock, see above
						if n := len(sim.Requests()); n > c.most {
							t.Errorf("%d requests in 20 quiet minutes", n)
						}
						inf, err := factory.Informer(f, &corev1.Pod{})
						if err := errors.Join(err, sim.Create(configMap("web",
							fmt.Sprint("other", sim.Revision())))); err != nil {
							t.Fatal(err)
						}
						// on the bubble's clock, which takes no time: whatever an answer has set
						// off has been asked by then
						time.Sleep(2 * time.Minute) // on the bubble's clock, see above
						if age, ok := inf.State().Age(time.Now()); !ok || age > c.age {
							t.Errorf("after a change elsewhere: confirmed %s ago, %s", age, inf.State())
						}
					})
				}
			})
		})
	}
}

// wakeTweaked wakes a factory and changes the server's pods. The server's version also
// moves by objects of another type.
func wakeTweaked(t *testing.T, sim *kubesim.Server, tweak func(*metav1.ListOptions), path string,
	quiet func(informers.SharedInformerFactory)) {
	t.Helper()
	changes := func() {
		name := fmt.Sprint("p", sim.Revision())
		if err := errors.Join(sim.Create(pod("web", name)), sim.Update(pod("web", name, "n", "1")),
			sim.Create(pod("web", name+"-gone")), sim.Delete(pod("web", name+"-gone"))); err != nil {
			t.Fatal(err)
		}
	}
	other := func() {
		if err := sim.Create(configMap("web", fmt.Sprint("other", sim.Revision()))); err != nil {
			t.Fatal(err)
		}
	}
	changes()
	changes()
	other()
	there, _, err := sim.List(&corev1.Pod{})
	if err == nil {
		err = sim.Delete(there[0].(*corev1.Pod))
	}
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.RESTConfig()
	cfg.QPS = -1
	db := open(t, path)
	f := informers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(reflector.WrapConfig(cfg)), 0,
		informers.WithTweakListOptions(tweak))
	var o factory.Options
	o.Informer.Reflector.Confirm = reflector.ConfirmBookmark
	if err := factory.Wake(f, db, o, &corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	store := f.Core().V1().Pods().Informer().GetStore()
	ctx, cancel := context.WithCancel(context.Background())
	f.StartWithContext(ctx)
	wait, enough := context.WithTimeout(ctx, 20*time.Second)
	if err := f.WaitForCacheSyncWithContext(wait).AsError(); err != nil {
		t.Errorf("within 20 s: %v", err)
	}
	enough()
	same := func(when string) {
		t.Helper()
		objs, _, err := sim.List(&corev1.Pod{})
		if err != nil {
			t.Fatal(err)
		}
		var want []string
		for _, o := range objs {
			want = append(want, "web/"+o.GetName())
		}
		slices.Sort(want)
		have := func() []string { return slices.Sorted(slices.Values(store.ListKeys())) }
		// a lister gives no signal when it has a change
		for end := time.Now().Add(time.Minute); !slices.Equal(have(), want); time.Sleep(time.Millisecond) { // polls
			if time.Now().After(end) {
				t.Errorf("%s: %q, want %q", when, have(), want)
				return
			}
		}
	}
	same("synced")
	changes()
	same("changed")
	sim.DropConnections()
	changes()
	same("after a broken link")
	other()
	sim.DropConnections()
	quiet(f)
	cancel()
	f.Shutdown()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
