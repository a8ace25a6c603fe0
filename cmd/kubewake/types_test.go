package main

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewake/kubewake/boltstore"
)

func TestNamesOfTypes(t *testing.T) {
	deployments := boltstore.State{Kind: "Deployment",
		Source: boltstore.Source{Group: "apps", Version: "v1", Resource: "deployments"}}
	pods := boltstore.State{Kind: "Pod", Source: boltstore.Source{Version: "v1", Resource: "pods"}}
	for _, tc := range []struct {
		arg  string
		st   boltstore.State
		want bool
	}{
		{"deployments", deployments, true}, {"deployment", deployments, true}, {"deploy", deployments, true},
		{"Deployments", deployments, true},
		{"deployments.apps", deployments, true}, {"deployments.v1.apps", deployments, true},
		{"deploy.apps", deployments, true},
		{"deployments.extensions", deployments, false}, {"deployments.v2.apps", deployments, false},
		{"deployments.v1", deployments, false},
		{"pods", pods, true}, {"po", pods, true}, {"pod", pods, true}, {"pods.v1", pods, true},
		{"pods.v1.", pods, true}, {"pods.", pods, true}, {"pods.apps", pods, false}, {"p", pods, false},
		{"", pods, false},
	} {
		arg := typedAs(tc.arg)
		if got := arg.names(tc.st) && arg.exactly(tc.st); got != tc.want {
			t.Errorf("%q is %s: %v", tc.arg, tc.st.Source, got)
		}
	}
}

// TestTableCells: the objects of the file, which are unstructured here, have the columns
// that a server prints.
func TestTableCells(t *testing.T) {
	pod := func(status map[string]any) map[string]any {
		return map[string]any{"metadata": map[string]any{"name": "p"},
			"spec": map[string]any{"containers": []any{map[string]any{}, map[string]any{}}}, "status": status}
	}
	waiting := map[string]any{"state": map[string]any{"waiting": map[string]any{"reason": "CrashLoopBackOff"}},
		"restartCount": int64(7)}
	ready := map[string]any{"ready": true, "state": map[string]any{"running": map[string]any{}},
		"restartCount": int64(1)}
	wide := []any{"<none>", "<none>", "<none>", "<none>"}
	for _, tc := range []struct {
		kind string
		obj  map[string]any
		want []any
	}{
		{"Pod", pod(map[string]any{"phase": "Running", "containerStatuses": []any{ready, ready}}),
			append([]any{"p", "2/2", "Running", "2", "<unknown>"}, wide...)},
		{"Pod", pod(map[string]any{"phase": "Running", "containerStatuses": []any{ready, waiting}}),
			append([]any{"p", "1/2", "CrashLoopBackOff", "8", "<unknown>"}, wide...)},
		{"Pod", pod(map[string]any{"phase": "Failed", "reason": "Evicted"}),
			append([]any{"p", "0/2", "Evicted", "0", "<unknown>"}, wide...)},
		{"Pod", pod(nil), append([]any{"p", "0/2", "", "0", "<unknown>"}, wide...)},
		{"LimitRange", pod(nil), []any{"p", "0001-01-01T00:00:00Z"}},
		{"Widget", pod(nil), []any{"p", nil}},
	} {
		st := boltstore.State{Kind: tc.kind, Source: boltstore.Source{Version: "v1"}}
		table, err := tableOf(st, []*unstructured.Unstructured{{Object: tc.obj}}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		cells := table.Rows[0].Cells
		if len(cells) != len(tc.want) || len(cells) != len(table.ColumnDefinitions) {
			t.Fatalf("%v, want %v", cells, tc.want)
		}
		for i := range cells {
			if cells[i] != tc.want[i] {
				t.Errorf("%s: %v is %q, want %q", tc.kind, table.ColumnDefinitions[i].Name, cells[i], tc.want[i])
			}
		}
	}
}
