package controllerruntime

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestExampleDiffers: two lines make an operator wake from a file, and five make its work
// durable.
func TestExampleDiffers(t *testing.T) {
	read := func(name string) (lines []string) {
		b, err := os.ReadFile(filepath.Join("example", name, "main.go"))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Split(string(b), "\n")
	}
	stock := read("stock")
	for name, most := range map[string]int{"kept": 2, "durable": 5} {
		had := map[string]int{}
		for _, l := range stock {
			had[l]++
		}
		n := 0
		for _, l := range read(name) {
			if had[l]--; had[l] < 0 {
				n++
			}
		}
		if n != most {
			t.Errorf("%s: %d lines are new, want %d", name, n, most)
		}
	}
}

// TestExamples runs the operators, each for two lives. Config map a is deleted between
// them. The stock operator looks at every object again, and does not hear of a. The one
// that keeps its cache does hear of it. The durable one looks at nothing but what changed.
func TestExamples(t *testing.T) {
	t.Parallel()
	s := server(t)
	bins := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bins, "./example/...")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o := newOperator(t, "shop")
	ns := o.namespaces[0]
	for name, second := range map[string][]string{
		"stock":   {"found b", "found z"},
		"kept":    {"gone a", "found b", "found z"},
		"durable": {"gone a", "found z"},
	} {
		o.write(ns, "a", name)
		o.write(ns, "b", name)
		work := t.TempDir()
		life := func(until func(lines []string) bool) (lines []string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, filepath.Join(bins, name))
			cmd.Dir, cmd.Env = work, append(os.Environ(), "KUBECONFIG="+s.Kubeconfig(t))
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := false
			for scan := bufio.NewScanner(out); scan.Scan(); {
				what, rest, _ := strings.Cut(scan.Text(), " ")
				if object, ok := strings.CutPrefix(rest, ns+"/"); ok {
					key, _, _ := strings.Cut(object, " ")
					lines = append(lines, what+" "+key)
				}
				if !ended && until(lines) {
					ended = true
					if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
						t.Error(err)
					}
				}
			}
			if err := cmd.Wait(); err != nil || !ended {
				t.Fatalf("%s: %v, after %q", name, err, lines)
			}
			return lines
		}
		has := func(want ...string) func([]string) bool {
			return func(lines []string) bool {
				all := " " + strings.Join(lines, ", ") + ","
				for _, w := range want {
					if !strings.Contains(all, " "+w+",") {
						return false
					}
				}
				return true
			}
		}
		life(has("found a", "found b"))
		o.remove(ns, "a")
		o.write(ns, "z", name)
		got := life(has(second...))
		if len(got) != len(second) {
			t.Errorf("%s: the second life has %q, want %q", name, got, second)
		}
		o.remove(ns, "b")
		o.remove(ns, "z")
	}
}
