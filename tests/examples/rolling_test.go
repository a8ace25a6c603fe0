package examples

import (
	"strings"
	"syscall"
	"testing"
)

// TestRollingUpdate replaces a program by a new one on the same file. The new one starts
// while the old one has the file, and the old one then ends by SIGTERM or SIGKILL. As
// docs/deploy.md says, the new one waits, or ends with an error that names the
// holder. In the end it has the file, and no delete is lost.
func TestRollingUpdate(t *testing.T) {
	for name, flags := range map[string][]string{"waits": {"--wait", "5m"}, "fails": nil} {
		for how, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGKILL": syscall.SIGKILL} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				sim, kubeconfig := simulator(t)
				for _, n := range []string{"kept", "before", "between", "after"} {
					create(t, sim, configMap(n, ""))
				}
				dir := t.TempDir()
				run := func(more ...string) *program {
					args := []string{"mirror", "configmaps", "-A", "--events", "--db", "cache.db", "--kubeconfig",
						kubeconfig}
					args = append(args, more...)
					return start(t, dir, nil, built(t, "kubewake"), args...)
				}
				old := run()
				old.complains(": live at")
				sim.ResetRequests()

				replacement := run(flags...)
				if name == "fails" {
					if err := replacement.wait(); err == nil || !strings.Contains(replacement.all(), "in use") ||
						!strings.Contains(replacement.all(), "pid") {
						t.Errorf("it does not end with the holder's name: %v\n%s", err, replacement.all())
					}
				}
				remove(t, sim, configMap("before", ""))
				old.says("DELETED configmaps web/before")
				remove(t, sim, configMap("between", "")) // the old one may be told, or not
				if err := old.cmd.Process.Signal(signal); err != nil {
					t.Fatal(err)
				}
				if err := old.wait(); (err == nil) != (signal == syscall.SIGTERM) {
					t.Errorf("the old one: %v", err)
				}
				if name == "fails" {
					replacement = run() // as the kubelet does
				}
				replacement.complains("objects from the file, at")
				remove(t, sim, configMap("after", ""))
				replacement.says("DELETED configmaps web/after")
				if !strings.Contains(old.all()+replacement.all(), "DELETED configmaps web/between") {
					t.Errorf("a delete is lost:\n%s\nthe new one:\n%s", old.all(), replacement.all())
				}
				replacement.end()
				get := start(t, dir, nil, built(t, "kubewake"), "get", "configmaps", "-A", "-o", "name", "--db",
					"cache.db")
				if err := get.wait(); err != nil || strings.Join(get.said.all(), " ") != "configmap/kept" {
					t.Errorf("the file has: %v\n%s", err, get.all())
				}
				if n := fullReads(sim); n != 0 {
					t.Errorf("everything was read %d times", n)
				}
			})
		}
	}
}
