package main

import (
	"bytes"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewake/kubewake/boltstore"
)

// TestGetOmitsManagedFields: as kubectl does, unless --show-managed-fields is given. With
// that flag kubectl's own code prints the objects.
func TestGetOmitsManagedFields(t *testing.T) {
	for _, output := range []string{"json", "yaml"} {
		for _, single := range []bool{true, false} {
			u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod",
				"metadata": map[string]any{
					"name": "p1", "managedFields": []any{map[string]any{"manager": "m"}}}}}
			g := &get{output: output}
			var whole, parts bytes.Buffer
			if err := g.print(&whole, boltstore.State{}, []*unstructured.Unstructured{u.DeepCopy()},
				single); err != nil {
				t.Fatal(err)
			}
			if err := (&lister{get: g}).write(&parts, []*unstructured.Unstructured{u}); err != nil {
				t.Fatal(err)
			}
			for _, s := range []string{whole.String(), parts.String()} {
				if strings.Contains(s, "managedFields") || !strings.Contains(s, "p1") {
					t.Errorf("%s, single %v:\n%s", output, single, s)
				}
			}
		}
	}
}
