package reflector

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
)

// versionsFixture is a source whose versions may not move, over some lives of one file.
type versionsFixture struct {
	t       *testing.T
	db      *boltstore.DB
	lw      cache.ListerWatcher
	example runtime.Object
	source  boltstore.Source
}

func newVersionsFixture(t *testing.T, lw cache.ListerWatcher) *versionsFixture {
	t.Helper()
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{Window: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &versionsFixture{t: t, db: db, lw: lw, example: &corev1.ConfigMap{},
		source: boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}}
}

// life runs a life, and returns its source when it has synced and the file has the names.
// fn is called then.
func (o *versionsFixture) life(fn func(*Reflector, *boltstore.Claimed), names ...string) State {
	o.t.Helper()
	store, err := o.db.Claim(boltstore.Claim{Source: o.source, Example: o.example})
	if err != nil {
		o.t.Fatal(err)
	}
	defer store.Release()
	j := fifo.New(store, nil)
	src := New(o.lw, j, store, o.example, "", Options{})
	ctx, cancel := context.WithCancel(o.t.Context())
	r := cache.NewReflectorWithOptions(o.lw, o.example, j, cache.ReflectorOptions{})
	done, popped := make(chan struct{}), make(chan struct{})
	go func() { defer close(done); src.Run(ctx, r, func(context.Context, *cache.Reflector, error) {}) }()
	go func() {
		defer close(popped)
		for {
			if _, err := j.Pop(func(any, bool) error { return nil }); err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-done; j.Close(); <-popped }()
	o.has(src, store, names)
	if fn != nil {
		fn(src, store)
	}
	return src.State()
}

// has waits until the source has synced and is live, and checks the file's objects at
// once, before anything could correct them.
func (o *versionsFixture) has(src *Reflector, store *boltstore.Claimed, names []string) {
	o.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !src.queue.HasSynced() || src.State().Phase != PhaseLive {
		if time.Now().After(deadline) {
			o.t.Fatalf("not live: %s", src.State())
		}
		time.Sleep(time.Millisecond) // between two looks: a phase gives no signal
	}
	keys := store.ListKeys()
	slices.Sort(keys)
	slices.Sort(names)
	if !slices.Equal(keys, names) {
		o.t.Errorf("%v, want %v, at %q: %s", keys, names, src.State().ResourceVersion, src.State())
	}
}

// come waits until the file has these objects.
func (o *versionsFixture) come(store *boltstore.Claimed, names ...string) {
	o.t.Helper()
	// between two looks: a commit gives no signal
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) { // between two looks, see above
		keys := store.ListKeys()
		slices.Sort(keys)
		if slices.Equal(keys, names) {
			return
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("%v, want %v", keys, names)
		}
	}
}

func configMapOf(name, rv string) corev1.ConfigMap {
	return corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: rv}}
}

// TestConstantVersions: a server that always states the same version counts as one
// without versions. Objects that are created, changed and deleted while the program is
// down are found.
func TestConstantVersions(t *testing.T) {
	for _, list := range []string{"1", "42", "0a", "constant"} {
		for name, of := range map[string]func(i int) string{
			"none":     func(int) string { return "" },
			"the same": func(int) string { return list },
			"others":   func(i int) string { return fmt.Sprint(i + 1) },
		} {
			t.Run(list+", objects "+name, func(t *testing.T) {
				objects := map[string]string{}
				serve := func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					if r.URL.Query().Get("watch") != "" {
						w.(http.Flusher).Flush()
						<-r.Context().Done()
						return
					}
					out := corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"},
						ListMeta: metav1.ListMeta{ResourceVersion: list}}
					if !strings.HasSuffix(r.URL.Path, "/configmaps") {
						http.NotFound(w, r)
						return
					}
					if r.URL.Query().Get("limit") != "1" {
						for name, rv := range objects {
							out.Items = append(out.Items, configMapOf(name, rv))
						}
					}
					_ = json.NewEncoder(w).Encode(out)
				}
				server := httptest.NewServer(http.HandlerFunc(serve))
				defer server.Close()
				client := kubernetes.NewForConfigOrDie(WrapConfig(&rest.Config{Host: server.URL,
					QPS: -1})).CoreV1().RESTClient()
				o := newVersionsFixture(t, cache.NewListWatchFromClient(client, "configmaps", "", fields.Everything()))
				objects = map[string]string{"a": of(0), "b": of(1)}
				o.life(nil, "a", "b")
				o.life(nil, "a", "b")
				objects = map[string]string{"b": of(1), "c": of(2)}
				o.life(nil, "b", "c")
				objects = map[string]string{"c": of(2)}
				st := o.life(nil, "c")
				if n := st.Relists[ReasonNoVersion]; n != 1 {
					t.Errorf("relists %v", st.Relists)
				}
			})
		}
	}
}

// TestConstantOverABrokenWatch: the next list finds changes that a broken watch did not
// bring, even if the server always states the same version.
func TestConstantOverABrokenWatch(t *testing.T) {
	names := []string{"a", "b"}
	watches := make(chan *watch.RaceFreeFakeWatcher, 10)
	o := newVersionsFixture(t, &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			list := &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: "42"}}
			for _, n := range names {
				list.Items = append(list.Items, configMapOf(n, "42"))
			}
			return list, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			watches <- w
			return w, nil
		},
	})
	st := o.life(func(_ *Reflector, s *boltstore.Claimed) {
		w := <-watches
		names = []string{"b", "c"}
		w.Stop()
		o.come(s, "b", "c")
		<-watches
	}, "a", "b")
	if st.Relists[ReasonNoVersion] > 2 {
		t.Errorf("relists %v", st.Relists)
	}
}

// TestClientGoFakes: the next life finds the objects of client-go's own fakes, however
// they count versions.
func TestClientGoFakes(t *testing.T) {
	t.Run("clientset", func(t *testing.T) {
		client := fake.NewClientset()
		maps := client.CoreV1().ConfigMaps("ns")
		create := func(n string) {
			if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: n}},
				metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(n string) {
			if err := maps.Delete(t.Context(), n, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		o := newVersionsFixture(t, &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) {
				return maps.List(ctx, lo)
			},
			WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) {
				return maps.Watch(ctx, lo)
			},
		})
		testFake(o, create, remove)
	})
	t.Run("dynamic", func(t *testing.T) {
		gvr := schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "things"}
		client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
			map[schema.GroupVersionResource]string{gvr: "ThingList"})
		var things dynamic.ResourceInterface = client.Resource(gvr).Namespace("ns")
		create := func(n string) {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Thing",
				"metadata": map[string]any{"name": n, "namespace": "ns"}}}
			if _, err := things.Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(n string) {
			if err := things.Delete(t.Context(), n, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		o := newVersionsFixture(t, &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, lo metav1.ListOptions) (runtime.Object, error) {
				return things.List(ctx, lo)
			},
			WatchFuncWithContext: func(ctx context.Context, lo metav1.ListOptions) (watch.Interface, error) {
				return things.Watch(ctx, lo)
			},
		})
		u := &unstructured.Unstructured{}
		u.SetAPIVersion("example.com/v1")
		u.SetKind("Thing")
		o.example, o.source = u, boltstore.Source{Group: "example.com", Version: "v1", Resource: "things",
			Form: boltstore.FormUnstructured}
		testFake(o, create, remove)
	})
	t.Run("controller source", func(t *testing.T) {
		s := fcache.NewFakeControllerSource()
		of := func(n string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: n}}
		}
		o := newVersionsFixture(t, s)
		testFake(o, func(n string) { s.Add(of(n)) }, func(n string) { s.Delete(of(n)) })
	})
}

func testFake(o *versionsFixture, create, remove func(string)) {
	create("a")
	create("b")
	o.life(nil, "ns/a", "ns/b")
	remove("a") // while the program is down
	o.life(nil, "ns/b")
	create("c")
	o.life(func(_ *Reflector, s *boltstore.Claimed) {
		create("d")
		o.come(s, "ns/b", "ns/c", "ns/d")
		remove("b")
		o.come(s, "ns/c", "ns/d")
	}, "ns/b", "ns/c")
	o.life(nil, "ns/c", "ns/d")
	remove("d")
	create("e")
	o.life(nil, "ns/c", "ns/e")
	remove("e")
	o.life(nil, "ns/c")
}

// TestMovingVersions: when a source's versions have moved once, the file's own version
// confirms, and nothing is listed.
func TestMovingVersions(t *testing.T) {
	at := "v1"
	o := newVersionsFixture(t, &cache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: at},
				Items: []corev1.ConfigMap{configMapOf("a", "v0")}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, lo metav1.ListOptions) (watch.Interface, error) {
			w := watch.NewRaceFreeFake()
			if lo.ResourceVersion != at {
				w.Action(watch.Bookmark, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: at}})
			}
			return w, nil
		},
	})
	lists := func(want int, when string) {
		t.Helper()
		if n := int(o.life(nil, "a").Relists[ReasonNoVersion]); n != want {
			t.Errorf("%s: %d lists", when, n)
		}
	}
	lists(0, "first life")
	lists(1, "nothing has moved")
	at = "v2"
	lists(0, "it has moved")
	lists(0, "where it is")
	lists(0, "where it still is")
}
