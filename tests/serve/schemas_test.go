package serve

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/tests/apiserver"
)

// output runs a program and returns what it prints on standard output and on the other.
func (w *world) output(t *testing.T, name string, args ...string) (stdout, stderr string, ok bool) {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "HOME="+w.dir)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	return out.String(), errOut.String(), err == nil
}

// schemas: explain works offline when the schema was asked for before; otherwise it says
// how to get it. It prints the same as kubectl for the server.
func (w *world) schemas(t *testing.T) {
	kubectl, err := apiserver.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	db := filepath.Join(w.dir, "f.db")
	explain := []string{"explain", "configmaps.data", "--db", db}
	if _, said, ok := w.output(t, w.bin, explain...); ok || strings.Count(said, "\n") != 1 ||
		!strings.Contains(said, "kubewake explain TYPE --fetch") {
		t.Errorf("nothing is kept: %s", said)
	}
	want, said, ok := w.output(t, kubectl, "explain", "configmaps.data", "--kubeconfig", w.s.Kubeconfig(t))
	if !ok {
		t.Fatal(said)
	}
	if got, said, _ := w.output(t, w.bin, append(explain, "--fetch", "--kubeconfig", w.kubeconfig)...); got != want {
		t.Errorf("fetched: %s\n%s\nof the server: %s", got, said, want)
	}
	served := []string{"--kubeconfig", db + ".kubeconfig", "--cache-dir", t.TempDir()}
	if got, said, _ := w.output(t, kubectl,
		append(served, "explain", "deployments.spec.replicas")...); !strings.Contains(got, "FIELD: replicas") {
		t.Errorf("of a type that the file lacks: %s %s", got, said)
	}
	files, err := os.ReadDir(db + ".openapi")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d bytes", f.Name(), info.Size())
	}
	w.link.Lose()
	defer w.link.Restore()
	if got, said, _ := w.output(t, w.bin, explain...); got != want {
		t.Errorf("offline: %s\n%s\nof the server: %s", got, said, want)
	}
	served[3] = t.TempDir() // kubectl keeps documents, too
	if got, said, _ := w.output(t, kubectl, append(served, "explain", "configmaps.data")...); got != want {
		t.Errorf("kubectl offline: %s\n%s", got, said)
	}
	if _, said, ok := w.output(t, kubectl,
		append(served, "explain", "configmaps.data", "--output", "plaintext-openapiv2")...); ok ||
		!strings.Contains(said, "explain TYPE --fetch") {
		t.Errorf("what is not kept: %s", said)
	}
}
