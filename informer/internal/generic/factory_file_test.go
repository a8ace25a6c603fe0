package generic_test

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer"
	"github.com/kubewake/kubewake/informer/dynamicinformer"
	"github.com/kubewake/kubewake/informer/metadatainformer"
	"github.com/kubewake/kubewake/reflector"
)

// TestNilFile: a factory without a file is an error that says what to give.
func TestNilFile(t *testing.T) {
	for _, k := range kinds {
		if _, err := k.ours(config(simulator(t)), filter{}, nil, informer.Options{}); err == nil ||
			!strings.Contains(err.Error(), "boltstore.Open") {
			t.Errorf("%s: %v", k.name, err)
		}
	}
}

// TestTwoLives: in its second life a factory can be read before it starts, tells the
// missed deletes, and lists nothing. Objects keep their kind.
func TestTwoLives(t *testing.T) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			sim := simulator(t)
			path := filepath.Join(t.TempDir(), "test.db")
			live := func(first int, want string) {
				db := open(t, path)
				f, err := k.ours(config(sim), filter{}, db,
					informer.Options{Reflector: reflector.Options{Confirm: reflector.ConfirmBookmark}})
				if err != nil {
					t.Fatal(err)
				}
				w := f.ForResource(widgets)
				if _, ok := w.Informer().(*informer.Informer); !ok {
					t.Errorf("the informer is a %T", w.Informer())
				}
				if objs, err := w.Lister().List(labels.Everything()); err != nil || len(objs) != first {
					t.Errorf("before the start %d objects, %v, want %d", len(objs), err, first)
				}
				told := &calls{}
				if _, err := w.Informer().AddEventHandler(told); err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(context.Background())
				f.Start(ctx.Done())
				f.WaitForCacheSync(ctx.Done())
				eventually(t, want, func() bool {
					return slices.ContainsFunc(told.sorted(), func(c string) bool {
						return strings.HasPrefix(c, want) && strings.HasSuffix(c, " web/a")
					})
				})
				stop()
				f.Shutdown()
				if err := db.Close(); err != nil {
					t.Error(err)
				}
			}
			live(0, "add")
			if err := sim.Delete(widget("web", "a")); err != nil {
				t.Fatal(err)
			}
			sim.ResetRequests()
			live(3, "delete")
			for _, r := range sim.Requests() {
				if r.FullRead() {
					t.Errorf("the second life lists all %s", r.Resource)
				}
			}
		})
	}
}

// TestSources: a factory's restrictions of its lists are part of the source, and
// factories of both kinds share one file.
func TestSources(t *testing.T) {
	sim := simulator(t)
	db := temporary(t)
	for _, k := range kinds {
		f, err := k.ours(config(sim), filter{"web", func(o *metav1.ListOptions) {
			o.LabelSelector = "a=b"
		}}, db, informer.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f.ForResource(widgets)
	}
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, st := range states {
		got = append(got, st.Source.String())
	}
	slices.Sort(got)
	if want := []string{"widgets.example.com/v1 -n web -l a=b (metadata)",
		"widgets.example.com/v1 -n web -l a=b (unstructured)"}; !slices.Equal(got, want) {
		t.Errorf("sources %q, want %q", got, want)
	}
}

// TestRefused: a client that is not wrapped is an error. A list that is already claimed
// is kept in memory, or with the strict option never syncs.
func TestRefused(t *testing.T) {
	sim := simulator(t)
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			db := temporary(t)
			if _, err := k.ours(sim.RESTConfig(), filter{}, db, informer.Options{}); !errors.Is(err,
				reflector.ErrUnidentified) || !strings.Contains(err.Error(), "WrapConfig") {
				t.Errorf("not wrapped: %v", err)
			}
			given, err := k.ours(sim.RESTConfig(), filter{namespace: "given"}, db,
				informer.Options{Reflector: reflector.Options{Source: &boltstore.Source{Cluster: "c"}}})
			if err != nil {
				t.Fatal(err)
			}
			if inf, ok := given.ForResource(widgets).Informer().(*informer.Informer); !ok ||
				!strings.HasPrefix(inf.Store().Source().String(), "widgets.example.com/v1 -n given --cluster c") {
				t.Errorf("a given source: %v", ok)
			}
			first, err := k.ours(config(sim), filter{}, db, informer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			first.ForResource(widgets)
			second, err := k.ours(config(sim), filter{}, db, informer.Options{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			w := second.ForResource(widgets)
			second.Start(ctx.Done())
			if synced := second.WaitForCacheSync(ctx.Done()); !synced[widgets] {
				t.Error("in memory it does not sync")
			}
			if objs, err := w.Lister().List(labels.Everything()); err != nil || len(objs) != 3 {
				t.Errorf("in memory: %d objects, %v", len(objs), err)
			}
			if n := len(db.Fallbacks()); n != 1 {
				t.Errorf("%d fallbacks", n)
			}
			strict, err := k.ours(config(sim), filter{}, db, informer.Options{Strict: true})
			if err != nil {
				t.Fatal(err)
			}
			if inf, ok := strict.ForResource(widgets).Informer().(interface{ State() reflector.State }); !ok ||
				inf.State().Phase != reflector.PhaseUnclaimed {
				t.Error("a strict one is not refused")
			}
			stop()
			second.Shutdown()
		})
	}
	for name, err := range map[string]error{"dynamic": second(dynamicinformer.NewDynamicSharedInformerFactory(nil, 0,
		nil, informer.Options{})),
		"metadata": second(metadatainformer.NewSharedInformerFactory(nil, 0, nil, informer.Options{}))} {
		if err == nil {
			t.Errorf("%s: no client is no error", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// TestTransform: the transform of the options applies, under its version.
func TestTransform(t *testing.T) {
	sim := simulator(t)
	for _, k := range kinds {
		f, err := k.ours(config(sim), filter{}, temporary(t),
			informer.Options{TransformVersion: "1", Transform: func(o any) (any, error) {
				m, err := meta.Accessor(o)
				if err == nil {
					m.SetLabels(map[string]string{"seen": "yes"})
				}
				return o, err
			}})
		if err != nil {
			t.Fatal(err)
		}
		w := f.ForResource(widgets)
		ctx, stop := context.WithCancel(context.Background())
		f.Start(ctx.Done())
		f.WaitForCacheSync(ctx.Done())
		if objs, err := w.Lister().List(labels.SelectorFromSet(labels.Set{"seen": "yes"})); err != nil ||
			len(objs) != 3 {
			t.Errorf("%s: %d objects, %v", k.name, len(objs), err)
		}
		stop()
		f.Shutdown()
	}
}
