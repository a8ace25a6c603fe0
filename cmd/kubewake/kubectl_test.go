package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestUnknownFlags: kubectl's commands end with a line about a wrong flag. diff has an exit
// code above 1 for it, and kubectl's code ends the process there.
func TestUnknownFlags(t *testing.T) {
	for _, cmd := range append(kubectlCommands(genericiooptions.IOStreams{}), newGet(genericiooptions.IOStreams{})) {
		if cmd.Name() == "explain" || cmd.Name() == "logs" {
			continue // they say the same about everything
		}
		var out, errOut bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: &out, ErrOut: &errOut},
			[]string{cmd.Name(), "--no-such-flag"})
		if code == 0 || cmd.Name() == "diff" && code < 2 || !strings.Contains(errOut.String(), "no-such-flag") ||
			out.Len() > 0 {
			t.Errorf("%s: exit code %d, %q %q", cmd.Name(), code, errOut.String(), out.String())
		}
	}
}

// TestNoFile: a file that cannot be opened is one line, however many types are asked for.
func TestNoFile(t *testing.T) {
	for _, line := range []string{"get pods,services", "get pods,services -o json", "describe pods,services",
		"get pods -w", "wait pod/a pod/b --for=delete", "events", "api-versions"} {
		var errOut bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: io.Discard, ErrOut: &errOut},
			append(strings.Fields(line), "--db", filepath.Join(t.TempDir(), "none.db")))
		if text := errOut.String(); code != 1 || !strings.HasPrefix(text, "error: open ") ||
			strings.Count(text, "\n") != 1 {
			t.Errorf("%s: exit code %d, %s", line, code, text)
		}
	}
}

// TestWatchOnFullDisk: a watch whose output cannot be written ends, with an error that says so.
func TestWatchOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	fileWith(t, path, []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c",
		ResourceVersion: "1"}}})
	for _, line := range []string{"get cm -A -w", "get cm/c -n web -w", "get cm -A -w -o name",
		"get cm -A -w --output-watch-events -o json"} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var errOut bytes.Buffer
		code := run(ctx, genericiooptions.IOStreams{Out: &fullWriter{}, ErrOut: &errOut},
			append(strings.Fields(line), "--db", path))
		if ctx.Err() != nil || code != 1 || !strings.Contains(errOut.String(), "full") {
			t.Errorf("%s: exit code %d, %v, %s", line, code, ctx.Err(), errOut.String())
		}
		cancel()
	}
}

// TestOutputOnFullDisk: output that cannot be written is the one error, also where kubectl's code
// would go on to ask for the next objects.
func TestOutputOnFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	var all []runtime.Object
	for i := range 50 {
		all = append(all, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: fmt.Sprint("c", i),
			ResourceVersion: "1"}})
	}
	fileWith(t, path, all)
	for _, line := range []string{"describe cm -A", "describe cm c1 c2 c3 c4 none -n web", "get cm -A --chunk-size=5",
		"get cm/c1 cm/c2 -n web -o yaml", "api-resources"} {
		var errOut bytes.Buffer
		code := run(t.Context(), genericiooptions.IOStreams{Out: &fullWriter{}, ErrOut: &errOut},
			append(strings.Fields(line), "--db", path))
		if said := errOut.String(); code != 1 || strings.Count(said, "full") != 1 ||
			!strings.Contains(said, "\nError: ") && !strings.HasPrefix(said, "Error: ") {
			t.Errorf("%s: exit code %d, %s", line, code, said)
		}
	}
}

// TestInterrupted: a command that is interrupted fails without an error of its own: nothing has
// timed out.
func TestInterrupted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	fileWith(t, path, []runtime.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "c",
		ResourceVersion: "1"}}})
	for _, line := range []string{"wait cm/c -n web --for=jsonpath={.data.x}=y --timeout=10m",
		"wait cm/c -n web --for=delete --timeout=10m", "get cm -A -w"} {
		ctx, cancel := context.WithCancel(t.Context())
		errOut := &interrupting{cancel: cancel}
		code := run(ctx, genericiooptions.IOStreams{Out: io.Discard, ErrOut: errOut},
			append(strings.Fields(line), "--db", path))
		if said := errOut.String(); code != 1 || ctx.Err() == nil || strings.Contains(said, "rror") {
			t.Errorf("%s: exit code %d, %s", line, code, said)
		}
		cancel()
	}
}

// interrupting ends a command that has begun to speak.
type interrupting struct {
	bytes.Buffer
	cancel func()
}

func (i *interrupting) Write(b []byte) (int, error) {
	i.cancel()
	return i.Buffer.Write(b)
}

// TestDescribeWithoutFields: describe of an object that lacks a field which every server sets,
// since a transform has taken it, ends with a line.
func TestDescribeWithoutFields(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db := filetest.OpenAt(t, path, boltstore.Options{})
	src := boltstore.Source{Group: "apps", Version: "v1", Resource: "deployments", Form: boltstore.FormTyped}
	filetest.Relist(t, filetest.Claim(t, db, src, &appsv1.Deployment{}), "10",
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", ResourceVersion: "1"}})
	copied := filepath.Join(t.TempDir(), "copy.db")
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(snap)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	var errOut bytes.Buffer
	code := run(t.Context(), genericiooptions.IOStreams{Out: io.Discard, ErrOut: &errOut},
		[]string{"describe", "deploy", "shop", "-n", "web", "--db", copied})
	if code != 1 || !strings.Contains(errOut.String(),
		"\nError: kubectl's code cannot do this with what the file has: ") {
		t.Errorf("%d %s", code, errOut.String())
	}
}
