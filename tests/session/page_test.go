package session

import (
	"reflect"
	"strings"
	"testing"
)

const example = "# A page\n\n    $ not run\n\n```go\n$ nor this\n```\n\n```console\n$ one \\\n  two\nage 5s at " +
	"127.0.0.1:80\n\nlast\nnode$ three\n```\n\nText.\n\n```console\n$ four\nversion 1234\n```\n"

// TestPage: commands and outputs are found, and outputs are replaced.
func TestPage(t *testing.T) {
	steps := parse(example)
	var got []string
	for _, s := range steps {
		got = append(got, s.host, s.command, strings.Join(s.shown, "|"))
	}
	want := []string{"", "one \\\n  two", "age 5s at 127.0.0.1:80||last", "node", "three", "", "", "four",
		"version 1234"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q", got)
	}
	outputs := [][]string{steps[0].shown, {"new"}, nil}
	changed := strings.Replace(strings.Replace(example, "three\n", "three\nnew\n", 1), "version 1234\n", "", 1)
	if got := rewritten(example, steps, outputs); got != changed {
		t.Errorf("%s", got)
	}
}

// TestConstant: texts that differ from run to run count as equal, and no others.
func TestConstant(t *testing.T) {
	for a, b := range map[string]string{
		"NAME   AGE\nx      5s":                     "NAME   AGE\nx      1m12s",
		"at https://127.0.0.1:4123; kubectl":        "at https://127.0.0.1:80; kubectl",
		"resourceVersion 211, as of \"1000\"":       "resourceVersion 4711, as of \"212\"",
		"2026-11-23T04:28:13Z  updated":             "2026-11-22T04:28:13.123Z  updated",
		"offline (ask: refused) at 1":               "offline (ask: EOF) at 1",
		"211 5s ago true 0 2 0s ago":                "212 5s ago true 0  0 0s ago",
		"cannot be reached: EOF":                    "cannot be reached: refused",
		"uid: 3f12689d-e2be-4fd8-816d-5f072e8e5277": "uid: 8a730eda-b96b-47d5-bd54-6d9043a73ea3",
		"Warning: 7s ago\nWarning: 2s ago\nx":       "Warning: 1s ago\nx",
		"139.3 kB, was 1.1 MB":                      "98.2 kB, was 2 MB",
		"Warning: this is what the file says; the server confirmed it 1s ago; the server did not confirm it " +
			"within 5s\nx": "x",
	} {
		if constant(strings.Split(a, "\n")) != constant(strings.Split(b, "\n")) {
			t.Errorf("%q is not %q", a, b)
		}
	}
	for a, b := range map[string]string{"x 1/1": "x 0/1", "3 objects": "4 objects", "apples at 2": "apples at 3",
		"found a": "", "Warning: a": "Warning: b", "x": "x\nx", "  indented": "indented"} {
		if constant([]string{a}) == constant(strings.Split(b, "\n")) {
			t.Errorf("%q is %q", a, b)
		}
	}
}
