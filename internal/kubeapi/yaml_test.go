package kubeapi

import (
	"encoding/json"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestYAMLOfAnyText: text with any character comes back from YAML as it was. YAML does not
// allow some characters that JSON does.
func TestYAMLOfAnyText(t *testing.T) {
	for r := rune(0); r < 0x11000; r++ {
		if r >= 0xd800 && r < 0xe000 {
			continue // no characters
		}
		if r > 0x3100 && r < 0xfe00 {
			continue // thousands of the same kind
		}
		text := "a " + string(r) + "b"
		data, err := yamlOf(json.Marshal(map[string]string{"k": text}))
		if err != nil {
			t.Errorf("%U: %v", r, err)
			continue
		}
		var back map[string]string
		if err := yaml.Unmarshal(data, &back); err != nil || back["k"] != text {
			t.Errorf("%U: %q, %v", r, back["k"], err)
		}
	}
}
