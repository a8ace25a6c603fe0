package apifile

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestWatchBeforeTheClaim: clients come back as soon as a program starts, before it keeps
// anything. A watch of a source that it does not keep then, or of one that it stops to keep,
// ends, since it would stay silent.
func TestWatchBeforeTheClaim(t *testing.T) {
	v1 := boltstore.Source{Group: "example.com", Version: "v1", Resource: "things", Form: boltstore.FormUnstructured}
	thing := func(version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/" + version, "kind": "Thing",
			"metadata": map[string]any{"namespace": "a", "name": "x", "resourceVersion": "5", "uid": "x"}}}
	}
	beta := v1
	beta.Version = "v1beta1"
	none := func(*boltstore.DB) *boltstore.Claimed { return nil }
	for name, tc := range map[string]struct {
		of    string
		first func(db *boltstore.DB) *boltstore.Claimed // before the watch
		then  func(db *boltstore.DB, s *boltstore.Claimed, event <-chan struct{})
	}{
		"another source is kept": {"/api/v1/namespaces/a/configmaps", none, func(db *boltstore.DB, _ *boltstore.Claimed, _ <-chan struct{}) {
			filetest.Claim(t, db, source1("configmaps", "a", ""), &corev1.ConfigMap{})
		}},
		"another version is kept": {"/apis/example.com/v1/things", none, func(db *boltstore.DB, _ *boltstore.Claimed, _ <-chan struct{}) {
			filetest.Relist(t, filetest.Claim(t, db, beta, thing("v1beta1")), "20", thing("v1beta1"))
		}},
		"another version is listed": {"/apis/example.com/v1/things", func(db *boltstore.DB) *boltstore.Claimed {
			return filetest.Claim(t, db, beta, thing("v1beta1"))
		}, func(_ *boltstore.DB, s *boltstore.Claimed, _ <-chan struct{}) {
			filetest.Relist(t, s, "20", thing("v1beta1"))
		}},
		"the source is kept for a while": {"/api/v1/namespaces/a/configmaps", none, func(db *boltstore.DB, _ *boltstore.Claimed, event <-chan struct{}) {
			all := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
			filetest.Relist(t, all, "30", configMap("a", "x", 1), configMap("a", "y", 25))
			<-event
			all.Release()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			db := filetest.Open(t, boltstore.Options{})
			all, things := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), filetest.Claim(t, db, v1, thing("v1"))
			filetest.Relist(t, all, "10", configMap("a", "x", 1), configMap("b", "z", 2))
			filetest.Relist(t, things, "10", thing("v1"))
			all.Release()
			things.Release()
			s := tc.first(db)
			h := New(db, Options{})
			event, ended := make(chan struct{}, 10), make(chan struct{})
			go func() {
				defer close(ended)
				w := &seen{httptest.NewRecorder(), "ADDED", func() { event <- struct{}{} }}
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, tc.of+"?watch=1&resourceVersion=0&allowWatchBookmarks=true", nil))
			}()
			<-event
			tc.then(db, s, event)
			select {
			case <-ended:
			case <-time.After(30 * time.Second):
				t.Error("the watch goes on, and would show nothing")
			}
		})
	}
}
