package printcolumns

import (
	"encoding/json"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// TestAnyObject: each kind has a row of as many cells as columns, which encodes, for an object
// with any fields. A transform may have removed those that a server always has.
func TestAnyObject(t *testing.T) {
	for gvk, kind := range kinds {
		if kind.typed == nil {
			continue // it reads any fields of unstructured objects
		}
		t.Run(gvk.Kind, func(t *testing.T) {
			var obj runtime.Object
			var seed int64
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("seed %d: %v: %#v", seed, p, obj)
				}
			}()
			for seed = range int64(200) {
				obj = kind.typed()
				if seed > 0 {
					randfill.NewWithSeed(seed).NilChance([]float64{0.1, 0.5, 0.9}[seed%3]).NumElements(0,
						5).MaxDepth(12).Fill(obj)
				}
				row, err := kind.Row(obj, time.Unix(1e9, 0))
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				if len(row.Cells) != len(kind.Columns()) {
					t.Fatalf("seed %d: %d cells in %d columns", seed, len(row.Cells), len(kind.Columns()))
				}
				if _, err := json.Marshal(row.Cells); err != nil {
					t.Fatalf("seed %d: %v: %v", seed, err, row.Cells)
				}
			}
		})
	}
}
