package apifile

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestMessages: an answer in protobuf that selects nothing copies what the file has. It is
// byte for byte the answer to a request whose selector leaves nothing out, for which all
// objects are decoded.
func TestMessages(t *testing.T) {
	gen := podgen.New(1)
	var pods, metadata []runtime.Object
	for i := range 150 {
		pod := gen.Pod(i)
		pods, metadata = append(pods, pod), append(metadata, &metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta})
	}
	ofMetadata := source1("pods", "", "")
	ofMetadata.Form = boltstore.FormMetadata
	for name, o := range map[string]boltstore.Options{
		"from the file": {ObjectMemory: -1},
		"in memory":     {ObjectMemory: 1 << 30},
		"packed":        {Compression: boltstore.CompressionZstd},
		"encrypted":     {Keyset: sealtest.Keyset()},
	} {
		for _, c := range []struct {
			src     boltstore.Source
			example runtime.Object
			stored  []runtime.Object
			accept  string
		}{
			{source1("pods", "", ""), &corev1.Pod{}, pods, protobuf},
			{source1("pods", "", ""), &corev1.Pod{}, pods,
				protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
			{ofMetadata, &metav1.PartialObjectMetadata{}, metadata,
				protobuf + ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"},
		} {
			t.Run(name+" "+string(c.src.Form)+" "+c.accept, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					db := filetest.Open(t, o)
					s := filetest.Claim(t, db, c.src, c.example)
					filetest.Relist(t, s, "100000", c.stored[:140]...)
					changed := c.stored[9].DeepCopyObject()
					changed.(metav1.Object).SetResourceVersion("150000")
					changed.(metav1.Object).SetLabels(map[string]string{"changed": "yes"})
					// nine are gone, ten have come
					filetest.Relist(t, s, "200000", append([]runtime.Object{changed}, c.stored[10:]...)...)
					h := New(db, Options{})
					get := func(path string) string {
						accept := c.accept
						if strings.Contains(path, "watch=1") {
							accept = strings.Replace(accept, "MetadataList", "Metadata", 1)
						}
						a := ask(t, h, http.MethodGet, path, "Accept", accept)
						if a.code != http.StatusOK || len(a.body) < 1000 {
							t.Fatalf("%s: %d %.300s", path, a.code, a.body)
						}
						return a.body
					}
					const watch = "watch=1&timeoutSeconds=5&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
					one := "/api/v1/namespaces/" + c.stored[30].(metav1.Object).GetNamespace() + "/pods?"
					for _, path := range []string{"/api/v1/pods?", "/api/v1/pods?resourceVersion=0", one,
						"/api/v1/pods?" + watch, one + watch,
						"/api/v1/pods?watch=1&timeoutSeconds=5&resourceVersion=100000"} {
						if copied, decoded := get(path), get(path+"&labelSelector=!none"); copied != decoded {
							t.Errorf("%s: %d bytes, decoded %d", path, len(copied), len(decoded))
						}
					}
					if name == "from the file" && c.accept == protobuf {
						decoded := testing.AllocsPerRun(3, func() { get("/api/v1/pods?labelSelector=!none") })
						if copied := testing.AllocsPerRun(3, func() { get("/api/v1/pods?") }); copied > decoded/2 {
							t.Errorf("%.0f allocations, and %.0f with all objects decoded", copied, decoded)
						}
					}
				})
			})
		}
	}
}
