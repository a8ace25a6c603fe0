package kubeapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// yamlOf turns JSON, or the error of making it, into YAML.
func yamlOf(data []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	return yaml.JSONToYAML(escaped(data))
}

// escaped escapes the characters that JSON may have as they are, and that YAML refuses or
// takes for the end of a line.
func escaped(data []byte) []byte {
	bad := func(r rune) bool {
		return r >= 0x7f && r < 0xa0 || r == 0x2028 || r == 0x2029 || r == 0xfeff || r == 0xfffe || r == 0xffff
	}
	if !bytes.ContainsFunc(data, bad) {
		return data
	}
	var out []byte
	for _, r := range string(data) {
		if bad(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// yamlItem is yamlOf for an element of a list. Lines of text that were folded stay so.
func yamlItem(data []byte, err error) ([]byte, error) {
	data, err = yamlOf(data, err)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, len(data)+len(data)/16)
	indent := "- "
	for line := range bytes.Lines(data) {
		if len(line) > 1 { // an empty one is a part of a text
			out = append(out, indent...)
		}
		out = append(out, line...)
		indent = "  "
	}
	return out, nil
}

// yamlFrame returns the parts of a list before and after its items, with keys in
// alphabetical order.
func (enc encoding) yamlFrame(gvk schema.GroupVersionKind, meta metav1.ListMeta) (head, tail []byte, err error) {
	of := func(fields map[string]any) []byte {
		if err != nil {
			return nil
		}
		var text []byte
		text, err = yamlOf(json.Marshal(fields))
		return text
	}
	version := map[string]any{"apiVersion": gvk.GroupVersion().String()}
	about := map[string]any{"kind": gvk.Kind, "metadata": meta}
	if enc.table == nil {
		head = append(of(version), "items:"...)
		return head, of(about), err
	}
	head = append(of(version), of(map[string]any{"columnDefinitions": enc.table.kind.Columns()})...)
	head = append(head, of(about)...)
	return append(head, "rows:"...), nil, err
}
