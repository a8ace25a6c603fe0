package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// lister writes a List in JSON or YAML, some items at a time. Its output is that of the
// printers, which write all of it at once.
type lister struct {
	*get
	begun bool
	tail  string
}

// write writes the next items.
func (l *lister) write(out *bytes.Buffer, objs []*unstructured.Unstructured) error {
	if len(objs) == 0 {
		return nil
	}
	items := make([]map[string]any, len(objs))
	for i, u := range objs {
		u.SetManagedFields(nil) // as the printers omit them
		items[i] = u.Object
	}
	part := map[string]any{"items": items}
	if !l.begun {
		var none bytes.Buffer
		if err := l.printList(&none, nil); err != nil {
			return err
		}
		head, tail, _ := strings.Cut(none.String(), "[]")
		l.begun, l.tail = true, tail
		if l.output == "json" {
			out.WriteString(head + "[\n")
		} else {
			out.WriteString(strings.TrimRight(head, " ") + "\n")
		}
	} else if l.output == "json" {
		out.WriteString(",\n")
	}
	if l.output == "yaml" {
		text, err := yaml.Marshal(part)
		out.Write(bytes.TrimPrefix(text, []byte("items:\n")))
		return err
	}
	text, err := json.MarshalIndent(part, "", "    ")
	text = bytes.TrimPrefix(text, []byte("{\n    \"items\": [\n"))
	out.Write(bytes.TrimSuffix(text, []byte("\n    ]\n}")))
	return err
}

// end writes the part after the items, or a List without items.
func (l *lister) end(out io.Writer) error {
	if !l.begun {
		return l.printList(out, nil)
	}
	text := strings.TrimPrefix(l.tail, "\n")
	if l.output == "json" {
		text = "\n    ]" + l.tail
	}
	_, err := io.WriteString(out, text)
	return err
}
