package informer

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/reflector"
)

// typedWidget is a custom resource as a program's own Go type.
type typedWidget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec struct {
		Color string `json:"color,omitempty"`
	} `json:"spec"`
}

func (w *typedWidget) DeepCopyObject() runtime.Object {
	c := *w
	w.ObjectMeta.DeepCopyInto(&c.ObjectMeta)
	return &c
}

type typedWidgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []typedWidget `json:"items"`
}

func (l *typedWidgetList) DeepCopyObject() runtime.Object {
	c := *l
	c.Items = slices.Clone(l.Items)
	return &c
}

// typedWidgets lists and watches widgets as their Go type.
func typedWidgets(t *testing.T, cfg *rest.Config) cache.ListerWatcher {
	gv := schema.GroupVersion{Group: "example.com", Version: "v1"}
	types := runtime.NewScheme()
	types.AddKnownTypeWithName(gv.WithKind("Widget"), &typedWidget{})
	types.AddKnownTypeWithName(gv.WithKind("WidgetList"), &typedWidgetList{})
	metav1.AddToGroupVersion(types, gv)
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(types).WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	watches := cache.NewListWatchFromClient(client, "widgets", "", fields.Everything())
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			l := &typedWidgetList{}
			return l, client.Get().Resource("widgets").VersionedParams(&o,
				runtime.NewParameterCodec(types)).Do(ctx).Into(l)
		},
		WatchFuncWithContext: watches.WatchFuncWithContext,
	}
}

// TestTypedCustomResource: for a custom resource in a Go type of its own, a list shows
// each object with apiVersion and kind, and a watch without. A list that compares content
// takes neither for a change.
func TestTypedCustomResource(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	// Each life's list waits until the handler has been told what the file has: it would be told
	// what the list brings before that as if it had been there.
	var replayed atomic.Pointer[chan struct{}]
	sim.OnRequest = func(r *http.Request) {
		select {
		case <-*replayed.Load():
		case <-r.Context().Done():
		}
	}
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	widget := func(name, color string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"color": color}}}
		u.SetAPIVersion("example.com/v1")
		u.SetKind("Widget")
		u.SetNamespace("default")
		u.SetName(name)
		return u
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 6 {
		check(sim.Create(widget(fmt.Sprint("w", i), "none")))
	}
	path := filepath.Join(t.TempDir(), "f.db")
	for life, want := range [][]string{{"w0 red", "w1 red", "w2 red"}, {"w2 reformed", "w3 blue", "w4 reformed"}, nil} {
		db, err := boltstore.Open(path, boltstore.Options{})
		check(err)
		inf, err := NewSharedIndexInformer(db, typedWidgets(t, reflector.WrapConfig(sim.RESTConfig())),
			&typedWidget{}, Options{})
		check(err)
		var mu sync.Mutex
		var told []string
		added := make(chan any, 100)
		gate := make(chan struct{})
		replayed.Store(&gate)
		reg, err := inf.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(obj any) {
			added <- obj
		}, UpdateFunc: func(_, obj any) {
			mu.Lock()
			defer mu.Unlock()
			w := obj.(*typedWidget)
			told = append(told, w.Name+" "+w.Spec.Color)
		}})
		check(err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { inf.RunWithContext(ctx); close(ended) }()
		first := life == 0
		eventually(t, "told what the file has", func() bool { return first || len(added) == 6 })
		close(gate)
		eventually(t, "the handler has synced", reg.HasSynced)
		eventually(t, "the list is counted", func() bool { return inf.State().LastRelist != "" })
		if listed := inf.State().Relists[reflector.ReasonFirst] > 0; listed != first {
			t.Errorf("life %d begins with a first list: %v", life, listed)
		}
		if first {
			for i := range 3 { // by the watch
				check(sim.Update(widget(fmt.Sprint("w", i), "red")))
			}
			eventually(t, "the watch has brought all", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(told) == 3
			})
		}
		stop()
		<-ended
		slices.Sort(told)
		if !slices.Equal(told, want) {
			t.Errorf("told %q, want %q; lists: %v", told, want, inf.State().Relists)
		}
		report, err := db.Check()
		check(err)
		if !report.Sound() {
			t.Error(report)
		}
		check(db.Close())
		if first { // the served form changes, and the next life has to list
			check(sim.Reform(widget("w2", "reformed")))
			check(sim.Reform(widget("w4", "reformed")))
			check(sim.Update(widget("w3", "blue")))
		} else {
			check(sim.Reform(widget("w4", "reformed")))
			check(sim.Create(widget("other", "none")))
			check(sim.Delete(widget("other", "none")))
		}
		sim.Compact()
	}
}
