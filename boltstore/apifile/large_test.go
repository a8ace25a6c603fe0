package apifile

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// large is a file with n config maps of about 10 KB.
func large(t *testing.T, n int) (*boltstore.Claimed, http.Handler) {
	t.Helper()
	db := filetest.Open(t, boltstore.Options{ObjectMemory: -1})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	objs := make([]runtime.Object, n)
	for i := range objs {
		cm := configMap("a", fmt.Sprintf("c%05d", i), i+1)
		cm.Data["fill"] = strings.Repeat(fmt.Sprintf("%04d ", i), 2000)
		objs[i] = cm
	}
	filetest.Relist(t, s, fmt.Sprint(n), objs...)
	return s, New(db, Options{})
}

// sink takes an answer and calls at before each write.
type sink struct {
	httptest.ResponseRecorder
	bytes int
	at    func()
}

func (s *sink) Write(b []byte) (int, error) {
	s.at()
	s.bytes += len(b)
	return len(b), nil
}

// TestLargeList: a list in JSON or YAML, of objects or as a table, has few objects in
// memory at a time.
func TestLargeList(t *testing.T) {
	const n = 3000
	_, h := large(t, n)
	for accept, limit := range map[string]string{"application/json": "-1", "application/yaml": "0", asTable: "0"} { // none, each of them
		before, most, writes := heap(), int64(0), 0
		w := &sink{}
		w.at = func() {
			if writes++; writes%1000 == 0 {
				most = max(most, heap()-before)
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps?includeObject=Object&limit="+limit, nil)
		r.Header.Set("Accept", accept)
		h.ServeHTTP(w, r)
		if w.bytes < n*10_000 || writes < 3000 {
			t.Fatalf("%s: %d bytes in %d writes", accept, w.bytes, writes)
		}
		if most > 16<<20 { // all of it is 30 MB, and as much again decoded
			t.Errorf("%s: the heap grew by %d MiB for a list of %d", accept, most>>20, w.bytes>>20)
		}
	}
}

// TestLargeListCompressed: a large list is compressed for clients that accept it, with
// the same content.
func TestLargeListCompressed(t *testing.T) {
	_, h := large(t, 300)
	plain := ask(t, h, http.MethodGet, "/api/v1/configmaps")
	packed := ask(t, h, http.MethodGet, "/api/v1/configmaps", "Accept-Encoding", "gzip")
	if packed.header.Get("Content-Encoding") != "gzip" || len(packed.body) > len(plain.body)/4 {
		t.Fatalf("%v, %d bytes", packed.header, len(packed.body))
	}
	zr, err := gzip.NewReader(strings.NewReader(packed.body))
	if err != nil {
		t.Fatal(err)
	}
	if body, err := io.ReadAll(zr); err != nil || string(body) != plain.body {
		t.Errorf("unpacked they differ: %v", err)
	}
}

// TestContentsGoMeanwhile: a list whose contents are set aside while it is sent breaks
// off. It does not end like a complete list.
func TestContentsGoMeanwhile(t *testing.T) {
	for accept, n := range map[string]int{"application/json": 300, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1": 2000, "application/yaml": 300, asTable: 2000} {
		s, h := large(t, n)
		w := &sink{}
		gone := false
		w.at = func() {
			if !gone {
				gone = true
				if err := s.SetAside(); err != nil {
					t.Error(err)
				}
			}
		}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/configmaps", nil)
		r.Header.Set("Accept", accept)
		func() {
			defer func() {
				if recover() != http.ErrAbortHandler {
					t.Errorf("%s: the list ended in good order after %d bytes", accept, w.bytes)
				}
			}()
			h.ServeHTTP(w, r)
		}()
	}
}
