package reflector

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFirstListOfAGateway: JSON that a gateway gives in place of the first list does not
// sync the source. A client of Go types reads it as a list without items.
func TestFirstListOfAGateway(t *testing.T) {
	warm(t)
	for _, says := range []string{"{}", `{"status":"ok"}`, "null", "[]", `"ok"`, "ok", "",
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}`,
		`{"items":` + strings.Repeat(" ", 1000)} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sim := kubesim.New(kubesim.Options{})
				if err := sim.StartPipes(); err != nil {
					t.Fatal(err)
				}
				var cfg *rest.Config
				f := fixtureWith(t, sim, 3, clock.RealClock{}, Options{}, func(c *rest.Config) {
					cfg = c
				}, func(cache.ListerWatcher) cache.ListerWatcher {
					c := kubernetes.NewForConfigOrDie(cfg).CoreV1().ConfigMaps("")
					return &cache.ListWatch{
						ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object,
							error) {
							return c.List(ctx, o)
						},
						WatchFuncWithContext: c.Watch,
					}
				})
				var on atomic.Bool
				on.Store(true)
				sim.FailNext(func(*http.Request) bool {
					return on.Load()
				}, 1<<30, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					_, _ = w.Write([]byte(says)) // the client may have left
				})
				f.reflect()
				after(5 * time.Minute)
				if st := f.store.State(); f.queue.HasSynced() || st.Synced {
					t.Errorf("synced with %d objects, %s", st.Objects, f.State())
				}
				on.Store(false)
				after(2 * time.Minute)
				if d := f.differs(); d != "" || !f.queue.HasSynced() || f.State().Phase != PhaseLive {
					t.Errorf("afterwards %s, %s", d, f.State())
				}
			})
		})
	}
}

// TestSmallLists: lists of any sloppy server are lists.
func TestSmallLists(t *testing.T) {
	for text, is := range map[string]bool{
		`{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[]}`:     true,
		`{"kind":"WidgetList","apiVersion":"example.com/v1","metadata":{}}`: true,
		`{"metadata":{"resourceVersion":"1"},"items":[]}`:                   true,
		` {"items":null}` + "\n":                                            true,
		`{"kind":"Status","apiVersion":"v1","items":[]}`:                    false,
		`{"kind":"Maintenance","metadata":{}}`:                              false,
		`{"metadata":{}}`:                                                   false,
		`{"kind":1,"items":[]}`:                                             false,
		`{"items":[]`:                                                       false,
	} {
		if isSmallList([]byte(text)) != is {
			t.Errorf("%s: %v", text, !is)
		}
	}
}

// TestListOfAnotherKind: an empty unstructured list of another group or kind is no list of
// the source's objects.
func TestListOfAnotherKind(t *testing.T) {
	for _, tc := range []struct {
		group, known, apiVersion, kind string
		is                             bool
	}{
		{"", "ConfigMap", "v1", "ConfigMapList", true},
		{"", "ConfigMap", "v1", "PodList", false},
		{"", "", "v1", "PodList", true}, // nothing shows the kind
		{"", "ConfigMap", "v1", "List", true},
		{"", "ConfigMap", "", "", true},
		{"", "ConfigMap", "apps/v1", "DeploymentList", false},
		{"apps", "Deployment", "v1", "PodList", false},
		{"example.com", "Widget", "example.com/v2", "WidgetCollection", true}, // as its definition may say
		{"example.com", "Widget", "v1", "NamespaceList", false},
		{"", "ConfigMap", "v1", "Status", false},
	} {
		r := &requests{server: "https://a", source: boltstore.Source{Group: tc.group}, kind: func() string {
			return tc.known
		}}
		list := &unstructured.UnstructuredList{Object: map[string]any{}}
		list.SetAPIVersion(tc.apiVersion)
		list.SetKind(tc.kind)
		if err := r.lists(list); (err == nil) != tc.is {
			t.Errorf("%+v: %v", tc, err)
		}
	}
}
