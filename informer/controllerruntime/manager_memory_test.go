package controllerruntime

import (
	"bytes"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kubewake/kubewake/informer"
)

// TestInMemory: a kind that is kept out of the file is read as any other, typed,
// unstructured and as metadata. Nothing of it is in the file, also if the options are
// strict, and nothing counts as fallen back.
func TestInMemory(t *testing.T) {
	sim := shop(t, "a")
	const mark = "this stays out of the file"
	if err := sim.Create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a",
		Annotations: map[string]string{"mark": mark}}, StringData: map[string]string{"key": mark}}); err != nil {
		t.Fatal(err)
	}
	o := options()
	o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
		m := meta.NewDefaultRESTMapper(nil)
		for _, kind := range []string{"ConfigMap", "Secret"} {
			m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
		}
		return m, nil
	}
	f := File{Path: filepath.Join(t.TempDir(), "test.db"), Informers: informer.Options{Strict: true},
		InMemory: []client.Object{&corev1.Secret{}}}
	secrets := corev1.SchemeGroupVersion.WithKind("SecretList")
	for range 2 {
		mgr, err := NewManager(sim.RESTConfig(), o, f)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := started(t, mgr)
		u, m := &unstructured.UnstructuredList{}, &metav1.PartialObjectMetadataList{}
		u.SetGroupVersionKind(secrets)
		m.SetGroupVersionKind(secrets)
		for _, l := range []client.ObjectList{&corev1.ConfigMapList{}, &corev1.SecretList{}, u, m} {
			if err := mgr.GetCache().List(ctx, l); err != nil || meta.LenList(l) != 1 {
				t.Errorf("%T: %d objects, %v", l, meta.LenList(l), err)
			}
		}
		db := FileOf(mgr)
		sources, err := db.Sources()
		if err != nil || len(sources) != 1 || sources[0].Source.Resource != "configmaps" {
			t.Errorf("the file has %v, %v", sources, err)
		}
		if fell := db.Fallbacks(); len(fell) > 0 {
			t.Errorf("fallbacks %v", fell)
		}
		end()
		if b, err := os.ReadFile(f.Path); err != nil || bytes.Contains(b, []byte(mark)) {
			t.Errorf("the file has an object's text, %v", err)
		}
	}
	f.InMemory = []client.Object{nil}
	if _, err := NewManager(sim.RESTConfig(), o, f); err == nil || !strings.Contains(err.Error(), "InMemory") {
		t.Errorf("an object without a kind: %v", err)
	}
}
