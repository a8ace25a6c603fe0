package main

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi/printcolumns"
)

// tableOf returns a table with a row for each object. A server prints tables itself, but
// there is no server here.
func tableOf(st boltstore.State, objs []*unstructured.Unstructured, now time.Time) (*metav1.Table, error) {
	gvk := schema.GroupVersionKind{Group: st.Source.Group, Version: st.Source.Version, Kind: st.Kind}
	var columns []printcolumns.Column
	for _, c := range st.Columns {
		columns = append(columns, printcolumns.Column(c))
	}
	kind := printcolumns.For(gvk, columns, st.Source.Form == boltstore.FormMetadata)
	t := &metav1.Table{ColumnDefinitions: kind.Columns()}
	for _, u := range objs {
		row, err := kind.Row(u, now)
		if err != nil {
			return nil, err
		}
		row.Object = runtime.RawExtension{Object: u}
		t.Rows = append(t.Rows, row)
	}
	return t, nil
}

func humanDuration(d time.Duration) string { return duration.HumanDuration(d) }
