package live

import (
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kruntime "k8s.io/apimachinery/pkg/runtime"
)

// filled is a file whose source has these objects, until the test ends.
func filled(t *testing.T, src boltstore.Source, example kruntime.Object, objs ...kruntime.Object) *boltstore.DB {
	t.Helper()
	db, err := boltstore.Open(testPath(t), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	filetest.Relist(t, filetest.Claim(t, db, src, example), "2", objs...)
	return db
}

// TestMetadataOfSecrets: the annotation that repeats the data is redacted even in
// Secrets that are kept as metadata.
func TestMetadataOfSecrets(t *testing.T) {
	src := boltstore.Source{Version: "v1", Resource: "secrets", Form: boltstore.FormMetadata}
	db := filled(t, src, &metav1.PartialObjectMetadata{}, &metav1.PartialObjectMetadata{ObjectMeta: secret(1, 10).ObjectMeta})
	for _, show := range []bool{false, true} {
		n := 0
		err := File(db).Objects(t.Context(), Query{Source: src, Secrets: show}, func(u *unstructured.Unstructured) error {
			n++
			if got := u.GetAnnotations()[applied]; (got == "hunter2") != show {
				t.Errorf("shown %q", got)
			}
			return nil
		})
		if err != nil || n != 1 {
			t.Error(n, err)
		}
	}
}

// TestSilentOwner: the error for an owner that does not answer says so, without the
// URL.
func TestSilentOwner(t *testing.T) {
	path := testPath(t)
	world(t, path, 1, 1)
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	c := dial(t, path)
	c.http.Timeout = time.Millisecond
	_, err = c.Status(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it does not answer") || strings.Contains(err.Error(), "http://") {
		t.Error(err)
	}
}

// TestKindOfEachObject: a custom resource may be defined again with another kind. Each
// object keeps its own, and is redacted by that.
func TestKindOfEachObject(t *testing.T) {
	src := boltstore.Source{Group: "example.com", Version: "v1", Resource: "things", Form: boltstore.FormUnstructured}
	var page []kruntime.Object
	for _, kind := range []string{"Secret", "Thing"} {
		page = append(page, &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": kind,
			"metadata": map[string]any{"namespace": "web", "name": strings.ToLower(kind), "resourceVersion": "1"}, "data": map[string]any{"password": "hunter2"}}})
	}
	db := filled(t, src, &unstructured.Unstructured{}, page...)
	shown := map[string]any{}
	if err := File(db).Objects(t.Context(), Query{Source: src}, func(u *unstructured.Unstructured) error {
		password, _, err := unstructured.NestedString(u.Object, "data", "password")
		shown[u.GetKind()] = password
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(shown) != 2 || shown["Secret"] != redacted || shown["Thing"] != "hunter2" {
		t.Error(shown)
	}
}
