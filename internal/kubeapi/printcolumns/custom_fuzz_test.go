package printcolumns

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzColumn: whatever path a definition's column has, an object has a cell that encodes.
func FuzzColumn(f *testing.F) {
	for _, path := range []string{".spec.a", `.spec.list[?(@.b=="c")].d`, "range .spec.list[*]}{.b}{end", ".x}{",
		"range .spec.list}{", "range .spec.list[*]}{.b", "range .x}{", "end}{range .spec.list[*]}{end}{end",
		".spec.list[0:-5:2]", ".metadata.labels.a\\.b", ".spec.no[0]", "range.0}{[]"} {
		for _, of := range []string{"string", "integer", "number", "boolean", "date"} {
			f.Add(path, of)
		}
	}
	content := map[string]any{
		"metadata": map[string]any{"name": "a", "creationTimestamp": "2026-01-02T03:04:05Z",
			"labels": map[string]any{"a.b": "c"}},
		"spec": map[string]any{"a": int64(1), "f": 1.5, "no": nil, "yes": true, "list": []any{
			map[string]any{"b": "c", "d": "2026-01-02T03:04:05Z"}, map[string]any{"b": int64(2)}, []any{"x"}, nil}},
	}
	f.Fuzz(func(t *testing.T, path, of string) {
		c := &Column{Name: "c", Type: of, JSONPath: path}
		if _, err := json.Marshal(c.cell(content, time.Unix(1e9, 0))); err != nil {
			t.Fatalf("%q: %v", path, err)
		}
	})
}
