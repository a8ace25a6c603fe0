package main

import (
	"bytes"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestUnknownFlags: kubectl's commands end with a line about a wrong flag. diff has an exit
// code above 1 for it, and kubectl's code ends the process there.
func TestUnknownFlags(t *testing.T) {
	for _, cmd := range append(kubectlCommands(genericiooptions.IOStreams{}), newGet(genericiooptions.IOStreams{})) {
		if cmd.Name() == "logs" {
			continue // it says the same about everything
		}
		var out, errOut bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errOut}, []string{cmd.Name(), "--no-such-flag"})
		if code == 0 || cmd.Name() == "diff" && code < 2 || !strings.Contains(errOut.String(), "no-such-flag") || out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q %q", cmd.Name(), code, errOut.String(), out.String())
		}
	}
}

// TestNoFile: a file that cannot be opened is one line, however many types are asked for.
func TestNoFile(t *testing.T) {
	for _, line := range []string{"get pods,services", "get pods,services -o json", "describe pods,services", "get pods -w", "wait pod/a pod/b --for=delete", "events", "api-versions"} {
		var errOut bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: io.Discard, ErrOut: &errOut}, append(strings.Fields(line), "--db", filepath.Join(t.TempDir(), "none.db")))
		if text := errOut.String(); code != 1 || !strings.HasPrefix(text, "error: open ") || strings.Count(text, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", line, code, text)
		}
	}
}
