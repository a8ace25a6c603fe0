package apifile

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

const asTable = "application/json;as=Table;v=v1;g=meta.k8s.io"

// cells returns the rows of a table, and checks that each has a cell for each column.
func cells(t *testing.T, a answered) (rows []string) {
	t.Helper()
	var table metav1.Table
	if err := json.Unmarshal([]byte(a.body), &table); err != nil || table.Kind != "Table" {
		t.Fatalf("%v: %d %s", err, a.code, a.body)
	}
	for _, row := range table.Rows {
		if len(row.Cells) != len(table.ColumnDefinitions) {
			t.Errorf("%d cells for %d columns", len(row.Cells), len(table.ColumnDefinitions))
		}
		rows = append(rows, strings.TrimSpace(fmt.Sprintln(row.Cells...)))
	}
	return rows
}

// TestTable: lists and gets come as tables, in pages too, with ages by the clock. The
// rows have no object, its metadata or all of it.
func TestTable(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	db := filetest.Open(t, boltstore.Options{})
	a, b := configMap("a", "x", 1), configMap("a", "y", 2)
	a.CreationTimestamp = metav1.NewTime(clock.Now().Add(-90 * time.Minute))
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10", a, b)
	h := New(db, Options{Clock: clock})
	const path = "/api/v1/configmaps"
	get := func(path string) answered { return ask(t, h, http.MethodGet, path, "Accept", asTable) }
	if got := strings.Join(cells(t, get(path)), "|"); got != "x 1 90m|y 1 <unknown>" {
		t.Errorf("list: %s", got)
	}
	if got := strings.Join(cells(t, get("/api/v1/namespaces/a/configmaps/x")), "|"); got != "x 1 90m" {
		t.Errorf("get: %s", got)
	}
	clock.Step(time.Hour)
	if got := strings.Join(cells(t, get(path)), "|"); got != "x 1 150m|y 1 <unknown>" {
		t.Errorf("an hour later: %s", got)
	}
	for include, want := range map[string]string{"None": `"object":null`,
		"Metadata": `"kind":"PartialObjectMetadata"`, "Object": `"data":{"k":"x"}`} {
		if a := get(path + "?includeObject=" + include); !strings.Contains(a.body, want) {
			t.Errorf("%s: no %s in %s", include, want, a.body)
		}
	}
	if a := get(path + "?includeObject=All"); a.code != http.StatusBadRequest ||
		!strings.Contains(a.body, "must be 'Metadata', 'Object', 'None', or empty") {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := get("/api/v1/namespaces/a/configmaps/z"); a.code != http.StatusNotFound || a.object.GetKind() != "Status" {
		t.Errorf("%d %s", a.code, a.body)
	}
}

// TestMetadataOnly: a source of metadata is served as that, and in tables. It is found,
// but has no whole objects, and none of the fields that these have.
func TestMetadataOnly(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	src := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormMetadata}
	pod := &metav1.PartialObjectMetadata{ObjectMeta: meta("a", "x", 1, "app=shop")}
	pod.CreationTimestamp = metav1.Unix(0, 0)
	filetest.Relist(t, filetest.Claim(t, db, src, &metav1.PartialObjectMetadata{}), "10", pod)
	h := New(db, Options{})
	const path, one = "/api/v1/pods", "/api/v1/namespaces/a/pods/x"
	if a := ask(t, h, http.MethodGet, "/api/v1"); !strings.Contains(a.body, `"kind":"Pod"`) {
		t.Errorf("discovery: %s", a.body)
	}
	partial := "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
	if a := ask(t, h, http.MethodGet, path+"?labelSelector=app%3Dshop", "Accept", partial); a.names != "a/x" {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := ask(t, h, http.MethodGet, one, "Accept",
		strings.Replace(partial, "List", "", 1)); a.object.GetKind() != "PartialObjectMetadata" ||
		a.object.GetLabels()["app"] != "shop" {
		t.Errorf("%d %s", a.code, a.body)
	}
	if got := strings.Join(cells(t, ask(t, h, http.MethodGet, path, "Accept", asTable)),
		"|"); got != "x 1970-01-01T00:00:00Z" {
		t.Error(got)
	}
	for _, accept := range []string{"", "application/json", "application/vnd.kubernetes.protobuf", "*/*"} {
		for _, path := range []string{path, one, path + "?watch=true"} {
			if a := ask(t, h, http.MethodGet, path, "Accept", accept); a.code != http.StatusNotAcceptable {
				t.Errorf("%s as %q: %d %s", path, accept, a.code, a.body)
			}
		}
	}
	if a := ask(t, h, http.MethodGet, path+"?includeObject=Object", "Accept",
		asTable); a.code != http.StatusNotAcceptable {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := ask(t, h, http.MethodGet, path+"?fieldSelector=spec.nodeName%3Dn", "Accept",
		partial); a.code != http.StatusBadRequest {
		t.Errorf("%d %s", a.code, a.body)
	}
	// Whole objects are preferred.
	filetest.Relist(t, filetest.Claim(t, db, source1("pods", "", ""), &corev1.Pod{}), "5",
		&corev1.Pod{ObjectMeta: meta("a", "y", 2)})
	expect(t, h, path, http.StatusOK, "a/y")
}

// TestColumns: a custom resource has the columns of its described definition, otherwise
// its age. Cells of another type than the column's are empty.
func TestColumns(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC))
	db := filetest.Open(t, boltstore.Options{})
	gadget := func(name string, spec map[string]any) *unstructured.Unstructured {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Gadget",
			"spec": spec}}
		u.SetNamespace("a")
		u.SetName(name)
		u.SetResourceVersion("1")
		u.SetCreationTimestamp(metav1.NewTime(clock.Now().Add(-time.Hour)))
		return u
	}
	s := filetest.Claim(t, db, boltstore.Source{Group: "example.com", Version: "v1", Resource: "gadgets",
		Form: boltstore.FormUnstructured}, gadget("", nil))
	filetest.Relist(t, s, "10", gadget("x", map[string]any{"size": int64(3), "on": true}),
		gadget("y", map[string]any{"size": "big", "on": nil}))
	h := New(db, Options{Clock: clock})
	get := func() string {
		return strings.Join(cells(t, ask(t, h, http.MethodGet, "/apis/example.com/v1/gadgets", "Accept", asTable)), "|")
	}
	if got := get(); got != "x 60m|y 60m" {
		t.Error(got)
	}
	if err := s.Describe(boltstore.Description{Columns: []boltstore.Column{
		{Name: "Size", Type: "integer", JSONPath: ".spec.size"}, {Name: "On", Type: "string", JSONPath: ".spec.on"},
		{Name: "Bad", Type: "string", JSONPath: ".spec["}, {Name: "None", Type: "string", JSONPath: ".spec.none[0]"},
	}}); err != nil {
		t.Fatal(err)
	}
	if got := get(); got != "x 3 true <nil> <nil>|y <nil> <no value> <nil> <nil>" {
		t.Error(got)
	}
}

// TestRefusedEncoding: a client that refuses gzip gets an answer without it.
func TestRefusedEncoding(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	large := configMap("a", "x", 1)
	large.Data["large"] = string(make([]byte, 1<<20))
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10", large)
	h := New(db, Options{})
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/configmaps?limit=1"} {
		for accept, want := range map[string]string{"gzip": "gzip", "GZIP": "gzip", "br, gzip;q=0.5": "gzip",
			"identity, gzip;q=0": "", "x-gzipped": "", "": ""} {
			if got := ask(t, h, http.MethodGet, path, "Accept-Encoding",
				accept).header.Get("Content-Encoding"); got != want {
				t.Errorf("%s: %q for %q", path, got, accept)
			}
		}
	}
}
