// Package readme runs the programs and commands of the README and of pages that it links to.
package readme

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

const (
	root   = "../.."
	cmdDir = root + "/cmd/kubewake" // a module of its own
)

// block returns the lines of a page's code block that contains what.
func block(t *testing.T, page, what string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		t.Fatal(err)
	}
	fenced := regexp.MustCompile("(?s)```[a-z]*\n(.*?)```").FindAllStringSubmatch(string(b), -1)
	indented := regexp.MustCompile(`(?m)(?:^(?:    .*)?\n)+`).FindAllString(string(b), -1)
	for _, m := range fenced {
		if strings.Contains(m[1], what) {
			return m[1]
		}
	}
	for _, m := range indented {
		if strings.Contains(m, what) {
			return m
		}
	}
	t.Fatalf("%s has no block with %q", page, what)
	return ""
}

// cluster is a simulator with some objects, and a kubeconfig for it.
func cluster(t *testing.T) (*kubesim.Server, string) {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for _, name := range []string{"a", "b"} {
		meta := metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{"app": "shop"}}
		if err := sim.Create(&corev1.Pod{ObjectMeta: meta}); err != nil {
			t.Fatal(err)
		}
		if err := sim.Create(&corev1.ConfigMap{ObjectMeta: meta}); err != nil {
			t.Fatal(err)
		}
	}
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: sim.URL()}
	c.Contexts["sim"] = &api.Context{Cluster: "sim"}
	c.CurrentContext = "sim"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return sim, path
}

// build compiles a package into a temporary folder.
func build(t *testing.T, dir, pkg, name string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", bin, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build %s: %v\n%s", pkg, err, out)
	}
	return bin
}

// TestCommands runs each command line of docs/commands.md; mirror until it is ready.
func TestCommands(t *testing.T) {
	_, kubeconfig := cluster(t)
	bin := build(t, cmdDir, ".", "kubewake")
	dir := t.TempDir()
	env := append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"PATH="+filepath.Dir(bin)+string(os.PathListSeparator)+os.Getenv("PATH"))
	for _, l := range strings.Split(block(t, "docs/commands.md", "kubewake mirror"), "\n") {
		l, _, _ = strings.Cut(strings.TrimSpace(l), " #")
		if l == "" {
			continue
		}
		args := strings.Fields(l)
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Path = bin
		cmd.Err = nil
		cmd.Dir, cmd.Env = dir, env
		if args[1] == "mirror" {
			mirror(t, cmd)
			continue
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", l, err, out)
		}
		t.Logf("%s\n%s", l, out)
		if args[1] == "get" && (!strings.Contains(string(out), "a ") || !strings.Contains(string(out), "b ")) {
			t.Errorf("%s does not show the pods:\n%s", l, out)
		}
	}
}

// mirror runs until all sources are live, then is told to end and must do so
// in order.
func mirror(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var log lockedBuffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	deadline := time.After(60 * time.Second)
	for tick := time.NewTicker(20 * time.Millisecond); strings.Count(log.String(), ": live") < 2; {
		select {
		case <-tick.C:
		case <-deadline:
			_ = cmd.Process.Kill()
			t.Fatalf("mirror is not live:\n%s", log.String())
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("mirror: %v\n%s", err, log.String())
	}
}

// TestDemo runs the same as make demo. The woken program reads and syncs sooner than
// client-go does, in one of three runs: other work may hold up one of both.
func TestDemo(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(block(t, "README.md", "make demo"), "make demo") ||
		!strings.Contains(string(b), "go run -C tests ./examples/demo") {
		t.Fatal("make demo is not what this test runs")
	}
	demo := build(t, "..", "./examples/demo", "demo")
	var slower []string
	for range 3 {
		if slower = slowerRows(t, demo); len(slower) == 0 {
			return
		}
	}
	t.Error(slower)
}

// slowerRows runs the demo, and returns the rows in which client-go is not behind.
func slowerRows(t *testing.T, demo string) (slower []string) {
	t.Helper()
	out, err := exec.Command(demo).Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	shown := block(t, "README.md", "The same restart")
	for _, l := range strings.Split(string(out), "\n") {
		// The figures differ, the words do not.
		if words := strings.TrimSpace(regexp.MustCompile(`(  |[0-9]).*`).ReplaceAllString(l,
			"")); !strings.Contains(shown, words) {
			t.Errorf("the README does not show %q of\n%s", words, out)
		}
	}
	for _, row := range []string{"to first read", "to synced, confirmed"} {
		ms := regexp.MustCompile(row + ` +(\d+) ms +(\d+) ms`).FindSubmatch(out)
		if ms == nil {
			t.Fatalf("no figures %q in\n%s", row, out)
		}
		kubewake, _ := strconv.Atoi(string(ms[1])) // digits
		stock, _ := strconv.Atoi(string(ms[2]))
		if kubewake >= stock {
			slower = append(slower, fmt.Sprintf("%s: %d ms, client-go %d ms", row, kubewake, stock))
		}
	}
	return slower
}

// TestProgram builds the program of docs/library.md and lets it live twice.
func TestProgram(t *testing.T) {
	sim, kubeconfig := cluster(t)
	// Inside the tests module, whose requirements it shares.
	dir, err := os.MkdirTemp(".", "program-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	source := block(t, "docs/library.md", "func main()")
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	bin := build(t, ".", "./"+dir, "program")
	work := t.TempDir()
	live := func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		cmd := exec.CommandContext(ctx, bin)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "KUBECONFIG="+kubeconfig)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return string(out)
	}
	want := "before any request: 0\nconfirmed by the server: 2\n"
	if got := live(); got != want {
		t.Fatalf("first life printed\n%s", got)
	}
	if err := sim.Delete(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "a"}}); err != nil {
		t.Fatal(err)
	}
	want = "before any request: 2\ndeleted while we slept: web/a\nconfirmed by the server: 1\n"
	if got := live(); got != want {
		t.Fatalf("second life printed\n%s", got)
	}
}
