package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestDifferences: each way in which two objects can differ has its word.
func TestDifferences(t *testing.T) {
	file := map[string]side{
		"alike": {UID: "u", ResourceVersion: "5"}, "older": {UID: "u", ResourceVersion: "9"},
		"newer":     {UID: "u", ResourceVersion: "10"},
		"recreated": {UID: "u", ResourceVersion: "5"}, "opaque": {UID: "u", ResourceVersion: "a"},
		"different": {UID: "u", ResourceVersion: "5"},
		"extra":     {UID: "u", ResourceVersion: "5"},
	}
	other := map[string]side{
		"alike": {UID: "u", ResourceVersion: "5"}, "older": {UID: "u", ResourceVersion: "10"},
		"newer":     {UID: "u", ResourceVersion: "9"},
		"recreated": {UID: "v", ResourceVersion: "6"}, "opaque": {UID: "u", ResourceVersion: "b"},
		"different": {UID: "u", ResourceVersion: "5", content: [32]byte{1}},
		"missing":   {UID: "u", ResourceVersion: "5"},
	}
	var got []string
	for _, d := range differences(file, other) {
		got = append(got, fmt.Sprint(d.Key, " ", d.What, " ", d.File != nil, " ", d.Other != nil))
	}
	want := []string{
		"different different true true", "extra extra true false", "missing missing false true",
		"newer newer true true",
		"older older true true", "opaque different true true", "recreated recreated true true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

// TestNoDifferencesInJSON: a program gets a list, also an empty one.
func TestNoDifferencesInJSON(t *testing.T) {
	var out bytes.Buffer
	c := &compare{streams: genericiooptions.IOStreams{Out: &out}, output: "json"}
	if err := c.print(differences(nil, nil)); err != nil || out.String() != "[]\n" {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestOtherFileThatCannotBeRead: the error names the flag that gave the file.
func TestOtherFileThatCannotBeRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f.db")
	fileWith(t, path, nil)
	for line, flag := range map[string]string{path + " --with " + filepath.Join(dir, "none.db"): "(--with)",
		filepath.Join(dir, "none.db") + " --with " + path: "(--db)"} {
		var errOut bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: &bytes.Buffer{}, ErrOut: &errOut},
			append([]string{"compare", "cm", "-A", "--db"}, strings.Fields(line)...))
		if text := errOut.String(); code != 2 || !strings.HasSuffix(text, flag+"\n") {
			t.Errorf("%s: exit code %d, %s", line, code, text)
		}
	}
}
