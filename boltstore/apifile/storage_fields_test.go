package apifile

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestSourceOfAField: the fields that a source was selected by can be asked for, in every
// form of its objects.
func TestSourceOfAField(t *testing.T) {
	pod := corev1.Pod{ObjectMeta: meta("a", "x", 1), Spec: corev1.PodSpec{NodeName: "n1"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pod)
	if err != nil {
		t.Fatal(err)
	}
	untyped := &unstructured.Unstructured{Object: content}
	untyped.SetAPIVersion("v1")
	untyped.SetKind("Pod")
	gizmo := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gizmo",
		"spec": map[string]any{"color": "red"}}}
	gizmo.SetName("x")
	gizmo.SetNamespace("a")
	gizmo.SetResourceVersion("1")
	for name, tc := range map[string]struct {
		source boltstore.Source
		object runtime.Object
		field  string
	}{
		"typed": {boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}, &pod,
			"spec.nodeName=n1"},
		"stripped": {boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped},
			&corev1.Pod{ObjectMeta: pod.ObjectMeta}, "spec.nodeName=n1"},
		"assigned": {boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped},
			&corev1.Pod{ObjectMeta: pod.ObjectMeta}, "spec.nodeName!="},
		"unstructured": {boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormUnstructured}, untyped,
			"spec.nodeName=n1"},
		"metadata": {boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormMetadata},
			&metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}, "spec.nodeName=n1"},
		"another node": {boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormMetadata},
			&metav1.PartialObjectMetadata{ObjectMeta: pod.ObjectMeta}, "spec.nodeName!=n2"},
		"custom": {boltstore.Source{Group: "example.com", Version: "v1", Resource: "gizmos",
			Form: boltstore.FormUnstructured}, gizmo, "spec.color=red"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := filetest.Open(t, boltstore.Options{})
			tc.source.FieldSelector = tc.field
			s := filetest.Claim(t, db, tc.source, tc.object.DeepCopyObject())
			filetest.Relist(t, s, "10", tc.object)
			h := New(db, Options{})
			path := "/api/v1/pods?fieldSelector="
			if tc.source.Group != "" {
				path = "/apis/example.com/v1/gizmos?fieldSelector="
			}
			partial := []string{"Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"}
			if a := ask(t, h, http.MethodGet, path+url.QueryEscape(tc.field), partial...); a.code != 200 ||
				a.names != "a/x" {
				t.Errorf("%d %s", a.code, a.body)
			}
			if a := ask(t, h, http.MethodGet, path+url.QueryEscape(tc.field+",metadata.name=y"),
				partial...); a.code != 200 || a.names != "" {
				t.Errorf("another name: %d %s", a.code, a.body)
			}
			partial[1] = strings.Replace(partial[1], "List", "", 1)
			if a := ask(t, h, http.MethodGet, path+url.QueryEscape(tc.field)+"&watch=true&timeoutSeconds=1",
				partial...); a.code != 200 || !strings.Contains(a.body, `"ADDED"`) {
				t.Errorf("a watch: %d %s", a.code, a.body)
			}
		})
	}
}

// TestFieldOfOthers: a question for a field that the file cannot select by is left to the
// server.
func TestFieldOfOthers(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	gizmo := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gizmo"}}
	gizmo.SetName("x")
	filetest.Relist(t, filetest.Claim(t, db,
		boltstore.Source{Group: "example.com", Version: "v1", Resource: "gizmos", Form: boltstore.FormUnstructured},
		gizmo), "10", gizmo)
	h := New(db, Options{Otherwise: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
	})})
	for _, query := range []string{"", "&watch=true"} {
		if a := ask(t, h, http.MethodGet,
			"/apis/example.com/v1/gizmos?fieldSelector=spec.color%3Dred"+query); a.code != http.StatusTeapot {
			t.Errorf("%q: %d %s", query, a.code, a.body)
		}
	}
	expect(t, New(db, Options{}), "/apis/example.com/v1/gizmos?fieldSelector=spec.color%3Dred", 400,
		"field label not supported: spec.color")
}
