package apifile

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestWatchBeforeTheClaim: clients come back as soon as a program starts, before it keeps
// anything. A watch of a source that is kept for a while ends after that, since it would stay silent.
func TestWatchBeforeTheClaim(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	kept := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, kept, "10", configMap("a", "x", 1), configMap("b", "z", 2))
	kept.Release()
	event, ended := make(chan struct{}, 10), make(chan struct{})
	go func() {
		defer close(ended)
		w := &seen{httptest.NewRecorder(), "ADDED", func() { event <- struct{}{} }}
		const of = "/api/v1/namespaces/a/configmaps?watch=1&resourceVersion=0&allowWatchBookmarks=true"
		New(db, Options{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, of, nil))
	}()
	<-event
	kept = filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, kept, "30", configMap("a", "x", 1), configMap("a", "y", 25))
	<-event
	kept.Release()
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Error("the watch goes on, and would show nothing")
	}
}
