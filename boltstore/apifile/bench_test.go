package apifile

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// BenchmarkGet has what a get of one small pod costs beside the link, by the number of
// sources in the file: each request looks at what the file has of all of them.
func BenchmarkGet(b *testing.B) {
	for _, sources := range []int{1, 60} {
		b.Run(fmt.Sprintf("sources=%d", sources), func(b *testing.B) {
			db := filetest.Open(b, boltstore.Options{})
			for i := range sources {
				ns := fmt.Sprintf("n%d", i)
				filetest.Relist(b, filetest.Claim(b, db, source1("pods", ns, ""), &corev1.Pod{}), "10",
					&corev1.Pod{ObjectMeta: meta(ns, "x", 1)})
			}
			h := New(db, Options{})
			b.ReportAllocs()
			for b.Loop() {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/namespaces/n0/pods/x", nil))
				if w.Code != http.StatusOK {
					b.Fatal(w.Body)
				}
			}
		})
	}
}
