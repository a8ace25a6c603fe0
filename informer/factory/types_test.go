package factory_test

import (
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/informer/factory"
)

// TestEveryType: each type that client-go's factory has wakes, as the list that the
// factory's own informer would ask for, with a real client and with the fake one.
func TestEveryType(t *testing.T) {
	sim := simulator(t)
	real := informers.NewSharedInformerFactory(client(sim), 0)
	faked := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	realDB, fakeDB := temporary(t), temporary(t)
	n := 0
	for gvk := range scheme.Scheme.AllKnownTypes() {
		gvr, _ := meta.UnsafeGuessKindToResource(gvk)
		if _, err := informers.NewSharedInformerFactory(nil, 0).ForResource(gvr); err != nil {
			continue // it has no informer
		}
		n++
		example, err := scheme.Scheme.New(gvk)
		if err != nil {
			t.Fatal(err)
		}
		want := boltstore.Source{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource,
			Form: boltstore.FormTyped}
		for db, f := range map[*boltstore.DB]informers.SharedInformerFactory{realDB: real, fakeDB: faked} {
			if err := factory.Wake(f, db, factory.Options{}, example); err != nil {
				t.Error(err)
				continue
			}
			inf, err := factory.Informer(f, example)
			if err != nil {
				t.Error(err)
				continue
			}
			if got := inf.Store().Source(); got != want {
				t.Errorf("%T is %s, want %s", example, got, want)
			}
			generic, err := f.ForResource(gvr)
			if err != nil || !sameStore(generic.Informer().GetStore(), inf.GetStore()) {
				t.Errorf("%s has another informer than the woken one: %v", gvr, err)
			}
		}
	}
	if n < 60 {
		t.Errorf("only %d types were tried", n)
	}
	t.Log(n, "types")
}

func sameStore(a, b any) bool {
	return reflect.ValueOf(a).Pointer() == reflect.ValueOf(b).Pointer()
}
