package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestConfigKeys: docs/mirror.md has each key of the config file.
func TestConfigKeys(t *testing.T) {
	t.Setenv("HOME", "~")
	t.Setenv("KUBEWAKE_DB", "")
	t.Setenv("KUBEWAKE_KEYSET", "")
	table := configKeys()
	path := filepath.Join("..", "..", "docs", "mirror.md")
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const before = "## Keys\n\n"
	text, has, _ := strings.Cut(string(page), before)
	if has == table {
		return
	}
	if os.Getenv("KUBEWAKE_RECORD") == "" {
		t.Fatal("docs/mirror.md has other keys than kubewake mirror; KUBEWAKE_RECORD=1 writes them")
	}
	if err := os.WriteFile(path, []byte(text+before+table), 0o644); err != nil {
		t.Fatal(err)
	}
}

// configKeys is a table of the keys that mirror's config file may have.
func configKeys() string {
	cmd, _ := mirrorCommand(genericiooptions.IOStreams{})
	connection := pflag.NewFlagSet("", pflag.ContinueOnError)
	genericclioptions.NewConfigFlags(true).AddFlags(connection)
	var kubectls []string
	text := "| key | value | default | meaning |\n|---|---|---|---|\n" +
		"| `" + keyTypes + "` | list |  | the types to mirror, as on the command line: `pods`, `deployments.apps` |\n"
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !inConfig(f) {
			return
		}
		if connection.Lookup(f.Name) != nil && f.Name != "namespace" {
			kubectls = append(kubectls, "`"+f.Name+"`")
			return
		}
		_, usage := pflag.UnquoteUsage(f)
		def := f.DefValue
		if def == "[]" {
			def = ""
		}
		if def != "" {
			def = "`" + def + "`"
		}
		kind := map[string]string{"stringArray": "list", "bool": "true or false", "string": "text", "int": "number",
			"int64": "number"}[f.Value.Type()]
		if kind == "" {
			kind = f.Value.Type()
		}
		text += fmt.Sprintf("| `%s` | %s | %s | %s |\n", f.Name, kind, def, strings.ReplaceAll(usage, "|", `\|`))
	})
	return text + "\nThese mean the same as with kubectl (`kubectl options`): " + strings.Join(kubectls, ", ") + ".\n"
}
