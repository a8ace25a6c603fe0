package printcolumns

import (
	"reflect"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// Column is a column of a custom resource, as its definition has it: an element of
// additionalPrinterColumns.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
	JSONPath    string `json:"jsonPath"`
	Priority    int32  `json:"priority,omitempty"`
}

// custom returns the Kind of a custom resource. Without columns it has its age, as on a
// server. A column whose path cannot be parsed has empty cells.
func custom(columns []Column) *Kind {
	if len(columns) == 0 {
		columns = []Column{{Name: "Age", Type: "date", Description: metadata["creationTimestamp"],
			JSONPath: ".metadata.creationTimestamp"}}
	}
	return &Kind{
		columns: sync.OnceValue(func() []metav1.TableColumnDefinition {
			defs := []metav1.TableColumnDefinition{name()}
			for _, c := range columns {
				defs = append(defs, metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format,
					Priority: c.Priority,
					Description: or(c.Description,
						"Custom resource definition column (in JSONPath format): "+c.JSONPath)})
			}
			return defs
		}),
		row: func(obj runtime.Object, now time.Time) metav1.TableRow {
			return metav1.TableRow{Cells: customCells(obj, columns, now)}
		},
	}
}

func customCells(obj runtime.Object, columns []Column, now time.Time) []any {
	cells := make([]any, 1, 1+len(columns))
	if o, ok := obj.(metav1.Object); ok {
		cells[0] = o.GetName()
	}
	var content map[string]any
	if u, ok := obj.(*unstructured.Unstructured); ok {
		content = u.Object
	} else if m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj); err == nil {
		content = m
	}
	for _, c := range columns {
		cells = append(cells, c.cell(content, now))
	}
	return cells
}

// cell is the first value that the column's path finds, nil if there is none or it does
// not have the column's type. It is also nil where the package jsonpath panics, which it
// does on some paths that it has parsed, such as a slice after a range without an end.
func (c *Column) cell(content map[string]any, now time.Time) (cell any) {
	defer func() {
		if recover() != nil {
			cell = nil
		}
	}()
	path := jsonpath.New(c.Name).AllowMissingKeys(true) // it has a state: one for each goroutine
	if path.Parse("{"+c.JSONPath+"}") != nil {
		return nil
	}
	found, err := path.FindResults(content)
	if err != nil || len(found) == 0 || len(found[0]) == 0 || !found[0][0].IsValid() || !found[0][0].CanInterface() {
		return nil
	}
	value := found[0][0].Interface()
	switch c.Type {
	case "string":
		var s strings.Builder
		if path.PrintResults(&s, []reflect.Value{reflect.ValueOf(value)}) != nil {
			return nil
		}
		return s.String()
	case "integer":
		switch n := value.(type) {
		case int64:
			return n
		case float64:
			return int64(n)
		}
	case "number":
		switch n := value.(type) {
		case int64:
			return float64(n)
		case float64:
			return n
		}
	case "boolean":
		if b, ok := value.(bool); ok {
			return b
		}
	case "date":
		return date(value, now)
	}
	return nil
}

// date is the time that has passed since a date.
func date(value any, now time.Time) any {
	s, ok := value.(string)
	if !ok {
		return nil
	}
	var t metav1.Time
	if err := t.UnmarshalQueryParameter(s); err != nil {
		return "<invalid>"
	}
	return since(t.Time, now)
}
