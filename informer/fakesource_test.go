package informer

import (
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector"
)

// fakeSource is client-go's fake, and counts its requests.
type fakeSource struct {
	*fcache.FakeControllerSource
	asked chan string
}

func newFakeSource(t *testing.T) *fakeSource {
	f := &fakeSource{fcache.NewFakeControllerSource(), make(chan string, 100)}
	t.Cleanup(f.Shutdown)
	return f
}

func (f *fakeSource) List(o metav1.ListOptions) (runtime.Object, error) {
	f.asked <- "list"
	return f.FakeControllerSource.List(o)
}

func (f *fakeSource) Watch(o metav1.ListOptions) (watch.Interface, error) {
	w, err := f.FakeControllerSource.Watch(o)
	f.asked <- "watch at " + o.ResourceVersion
	return w, err
}

// TestFakeSourceWithoutObjects: client-go's fake source states version 0 until it has had
// an object, and accepts no watch without a version. The watch is opened at that version,
// as client-go opens it: no change is missed.
func TestFakeSourceWithoutObjects(t *testing.T) {
	db, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	f := newFakeSource(t)
	inf, err := NewSharedIndexInformer(db, f, &corev1.ConfigMap{},
		Options{Reflector: reflector.Options{Source: &boltstore.Source{Version: "v1", Resource: "configmaps",
			Form: boltstore.FormTyped}}})
	if err != nil {
		t.Fatal(err)
	}
	r := newRecorder(t)
	if _, err := inf.AddEventHandler(r); err != nil {
		t.Fatal(err)
	}
	if err := inf.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { t.Error(err) }); err != nil {
		t.Fatal(err)
	}
	feeding(t, inf)
	for _, want := range []string{"list", "watch at 0"} {
		if got := <-f.asked; got != want {
			t.Fatalf("it asks for a %s, want %s", got, want)
		}
	}
	f.Add(cm("a"))
	f.Modify(cm("a"))
	f.Delete(cm("a"))
	f.Add(cm("b"))
	r.expect("add a", "update a", "delete a", "add b")
	if len(f.asked) > 0 {
		t.Errorf("it asks for a %s, too", <-f.asked)
	}
}
