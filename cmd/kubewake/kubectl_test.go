package main

import (
	"bytes"
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
