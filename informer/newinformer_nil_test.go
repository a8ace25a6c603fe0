package informer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// nilExamples are values without an object. A nil pointer has a type, which is all that
// client-go needs.
var nilExamples = map[string]runtime.Object{
	"nothing": nil, "typed": (*corev1.ConfigMap)(nil), "unstructured": (*unstructured.Unstructured)(nil),
	"metadata": (*metav1.PartialObjectMetadata)(nil),
}

// TestNilExample: an informer without an example is an error that says what to give.
func TestNilExample(t *testing.T) {
	w := newWorld(t)
	m := w.managed()
	o := Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}}}
	for name, example := range nilExamples {
		if _, err := NewSharedIndexInformer(m.db, listWatch(w.config()), example, o); err == nil ||
			!strings.Contains(err.Error(), "such as &corev1.Pod{}") {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := reflector.NewStandalone(m.db, listWatch(w.config()), example, o.Reflector); err == nil ||
			!strings.Contains(err.Error(), "such as &corev1.Pod{}") {
			t.Errorf("%s, standalone: %v", name, err)
		}
	}
	if all, err := m.db.States(); err != nil || len(all) > 0 {
		t.Errorf("sources: %v, %v", all, err)
	}
}

// TestNilExampleOfAManager: a manager that gives no object gets client-go's informer, as
// for any list that the file cannot keep.
func TestNilExampleOfAManager(t *testing.T) {
	for name, example := range nilExamples {
		for _, strict := range []bool{false, true} {
			w := newWorld(t)
			m := w.managed()
			inf := ForControllerRuntime(m.db, Options{Strict: strict})(listWatch(w.config()), example, 0,
				cache.Indexers{})
			if _, ours := inf.(*Informer); ours || inf == nil {
				t.Errorf("%s: %T", name, inf)
			}
			if all := m.db.Fallbacks(); len(all) != 1 || !strings.Contains(fmt.Sprint(all), "such as &corev1.Pod{}") {
				t.Errorf("%s: %v", name, all)
			}
		}
	}
}

// TestNilFile: without a file an informer is an error that says what to give. A manager, which
// accepts no error, gets client-go's informer, or with Strict one that never syncs.
func TestNilFile(t *testing.T) {
	lw := typedMaps(newWorld(t).config(), "")
	const says = "the one that Open has returned"
	if _, err := NewSharedIndexInformer(nil, lw, &corev1.ConfigMap{}, Options{}); err == nil ||
		!strings.Contains(err.Error(), says) {
		t.Error(err)
	}
	if _, err := reflector.NewStandalone(nil, lw, &corev1.ConfigMap{}, reflector.Options{}); err == nil ||
		!strings.Contains(err.Error(), says) {
		t.Error("standalone:", err)
	}
	for _, strict := range []bool{false, true} {
		inf := ForControllerRuntime(nil, Options{Strict: strict})(lw, &corev1.ConfigMap{}, 0, byNamespace)
		if _, ours := inf.(*Informer); ours || inf == nil {
			t.Errorf("%T", inf)
		}
		if r, ok := inf.(*refused); ok != strict || ok && !strings.Contains(r.State().Reason, says) {
			t.Errorf("strict %v: %T", strict, inf)
		}
	}
}

// TestNilListerWatcher: an informer without a ListerWatcher is an error if nothing else says
// which list it is, and a manager gets client-go's. With a stated source it works as
// client-go's does: a unit test fills the store itself.
func TestNilListerWatcher(t *testing.T) {
	w := newWorld(t)
	m := w.managed()
	if _, err := NewSharedIndexInformer(m.db, nil, &corev1.ConfigMap{}, Options{}); !errors.Is(err,
		reflector.ErrUnidentified) || !strings.Contains(err.Error(), "nil") {
		t.Error(err)
	}
	if inf := ForControllerRuntime(m.db, Options{})(nil, &corev1.ConfigMap{}, 0, cache.Indexers{}); inf == nil ||
		len(m.db.Fallbacks()) != 1 {
		t.Errorf("%T, fallbacks %v", inf, m.db.Fallbacks())
	}
	o := Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
		Form: boltstore.FormTyped}}}
	inf, err := NewSharedIndexInformer(m.db, nil, &corev1.ConfigMap{}, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := inf.GetIndexer().Add(cm("a")); err != nil || len(inf.GetStore().List()) != 1 {
		t.Error(inf.GetStore().List(), err)
	}
}
