package factory_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/factory"
	"github.com/kubewake/kubewake/reflector"
)

// TestNilFile: a program that has not looked at the error of boltstore.Open gets one here.
func TestNilFile(t *testing.T) {
	f := informers.NewSharedInformerFactory(client(simulator(t)), 0)
	if err := factory.Wake(f, nil, factory.Options{}, &corev1.Pod{}); err == nil ||
		!strings.Contains(err.Error(), "look at Open's error") {
		t.Error(err)
	}
	if _, err := factory.Informer(f, &corev1.Pod{}); err == nil {
		t.Error("it woke")
	}
}

// TestRefused: a type that cannot wake gives an error that says what to do, and leaves
// the factory as it was.
func TestRefused(t *testing.T) {
	sim := simulator(t, configMap("web", "a"))
	pods := &corev1.Pod{}
	for _, tc := range []struct {
		name  string
		f     func(t *testing.T, db *boltstore.DB) any
		o     factory.Options
		types []runtime.Object
		is    error
		says  string
	}{
		{"not wrapped", func(*testing.T, *boltstore.DB) any {
			return informers.NewSharedInformerFactory(kubernetes.NewForConfigOrDie(sim.RESTConfig()), 0)
		}, factory.Options{}, nil, reflector.ErrUnidentified, "WrapConfig"},
		{"asked for", func(*testing.T, *boltstore.DB) any {
			f := informers.NewSharedInformerFactory(client(sim), 0)
			f.Core().V1().ConfigMaps().Lister()
			return f
		}, factory.Options{}, nil, nil, "call Wake before"},
		{"woken twice", func(t *testing.T, db *boltstore.DB) any {
			f := informers.NewSharedInformerFactory(client(sim), 0)
			if err := factory.Wake(f, db, factory.Options{}, &corev1.ConfigMap{}); err != nil {
				t.Fatal(err)
			}
			return f
		}, factory.Options{}, nil, nil, "call Wake before"},
		{"claimed", func(t *testing.T, db *boltstore.DB) any {
			other := informers.NewSharedInformerFactory(client(sim), 0)
			if err := factory.Wake(other, db, factory.Options{}, &corev1.ConfigMap{}); err != nil {
				t.Fatal(err)
			}
			return informers.NewSharedInformerFactory(client(sim), 0)
		}, factory.Options{}, nil, boltstore.ErrClaimed, "*v1.ConfigMap"},
		{"file closed", func(t *testing.T, db *boltstore.DB) any {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			return informers.NewSharedInformerFactory(client(sim), 0)
		}, factory.Options{}, nil, boltstore.ErrClosed, ""},
		{"no client", func(*testing.T, *boltstore.DB) any {
			return informers.NewSharedInformerFactory(nil, 0)
		}, factory.Options{}, nil, nil, "no client"},
		{"no factory", func(*testing.T, *boltstore.DB) any {
			return sim
		}, factory.Options{}, nil, nil, "no generated SharedInformerFactory"},
		{"nothing", func(*testing.T, *boltstore.DB) any {
			return nil
		}, factory.Options{}, nil, nil, "no generated SharedInformerFactory"},
		{"nil", func(*testing.T, *boltstore.DB) any {
			return (*embedding)(nil)
		}, factory.Options{}, nil, nil, "no generated SharedInformerFactory"},
		{"another factory's type", plain(client(sim)), factory.Options{},
			[]runtime.Object{&metav1.PartialObjectMetadata{}}, nil,
			"no client of kubernetes.Interface lists and watches it"},
		{"no types", plain(client(sim)), factory.Options{}, []runtime.Object{}, nil, "name the types"},
		{"nil type", plain(client(sim)), factory.Options{}, []runtime.Object{nil}, nil, "such as &corev1.Pod{}"},
		{"one source for two", plain(client(sim)),
			factory.Options{Informer: informer.Options{Reflector: reflector.Options{Source: &boltstore.Source{}}}},
			[]runtime.Object{pods, &corev1.Node{}}, nil, "2 types"},
		{"unknown fields", func(*testing.T, *boltstore.DB) any {
			return &embedding{informers.NewSharedInformerFactory(client(sim), 0)}
		}, factory.Options{}, nil, nil, "Options.Filter"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			db := temporary(t)
			f := tc.f(t, db)
			types := tc.types
			if types == nil {
				types = []runtime.Object{&corev1.ConfigMap{}}
			}
			err := factory.Wake(f, db, tc.o, types...)
			if err == nil || !strings.Contains(err.Error(), tc.says) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("the error is %v", err)
			}
			t.Log(err)
			left, ok := f.(informers.SharedInformerFactory)
			if !ok || f == (*embedding)(nil) || strings.Contains(tc.name, "no client") ||
				strings.Contains(tc.name, "twice") {
				return
			}
			lister := left.Core().V1().ConfigMaps().Lister() // in memory
			left.StartWithContext(t.Context())
			left.WaitForCacheSync(t.Context().Done())
			if _, err := lister.ConfigMaps("web").Get("a"); err != nil {
				t.Error("afterwards, in memory:", err)
			}
		})
	}
}

func plain(c kubernetes.Interface) func(*testing.T, *boltstore.DB) any {
	return func(*testing.T, *boltstore.DB) any { return informers.NewSharedInformerFactory(c, 0) }
}

// embedding is a factory whose namespace and list options cannot be read.
type embedding struct {
	informers.SharedInformerFactory
}

// TestGivenFilter: a wrapped factory wakes with a given filter.
func TestGivenFilter(t *testing.T) {
	sim := simulator(t)
	db := temporary(t)
	f := &embedding{informers.NewSharedInformerFactoryWithOptions(client(sim), 0, informers.WithNamespace("web"))}
	if err := factory.Wake(f, db, factory.Options{Filter: &factory.Filter{Namespace: "web"}},
		&corev1.Pod{}); err != nil {
		t.Fatal(err)
	}
	if got := sources(t, db); !slices.Equal(got, []string{"pods/v1 -n web"}) {
		t.Errorf("sources %q", got)
	}
}

// TestSomeWake: types that cannot wake do not keep the others from waking.
func TestSomeWake(t *testing.T) {
	sim := simulator(t)
	db := temporary(t)
	f := informers.NewSharedInformerFactory(client(sim), 0)
	f.Core().V1().Pods().Informer()
	err := factory.Wake(f, db, factory.Options{}, &corev1.Pod{}, &corev1.ConfigMap{})
	if err == nil || !strings.Contains(err.Error(), "*v1.Pod") || strings.Contains(err.Error(), "ConfigMap") {
		t.Errorf("the error is %v", err)
	}
	if _, err := factory.Informer(f, &corev1.ConfigMap{}); err != nil {
		t.Error(err)
	}
}

// broken is a factory that panics.
type broken struct{}

func (*broken) InformerFor(
	runtime.Object, func(kubernetes.Interface, time.Duration) cache.SharedIndexInformer,
) cache.SharedIndexInformer {
	panic("of its own")
}

// TestPanicOfAFactory: a panic that is not Wake's own goes on.
func TestPanicOfAFactory(t *testing.T) {
	defer func() {
		if r := recover(); r != "of its own" {
			t.Errorf("recovered %v", r)
		}
	}()
	err := factory.Wake(&broken{}, temporary(t), factory.Options{Filter: &factory.Filter{}}, &corev1.Pod{})
	t.Errorf("it did not panic: %v", err)
}
