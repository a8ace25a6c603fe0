package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestSystemdUnit runs the unit's command for two lives. The API is served, a SIGTERM ends
// it in order, and the second life reads nothing again.
func TestSystemdUnit(t *testing.T) {
	t.Parallel()
	sim, kubeconfig := simulator(t)
	if err := sim.Create(setting("a", "1")); err != nil {
		t.Fatal(err)
	}
	unit, err := os.ReadFile("deploy/kubewake.service")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command := strings.NewReplacer("${STATE_DIRECTORY}", dir, "/etc/kubewake/kubeconfig", kubeconfig).Replace(execStart(t, string(unit)))
	args := strings.Fields(command)
	for life := range 2 {
		sim.ResetRequests()
		p := start(t, dir, nil, built(t, filepath.Base(args[0])), args[1:]...)
		p.complains("configmaps/v1: live at")
		p.complains("pods/v1: live at")
		get := exec.Command(built(t, "kubewake"), "get", "configmaps", "-A", "-o", "name", "--db", filepath.Join(dir, "node.db"))
		if out, err := get.CombinedOutput(); err != nil || !strings.Contains(string(out), "configmap/a") {
			t.Errorf("%v: %s", err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "node.db.api.sock")); err != nil {
			t.Error(err)
		}
		p.end()
		if cost := kubesim.CostOf(sim.Requests()); (cost.FullReads == 0) != (life == 1) {
			t.Errorf("life %d: %+v", life, cost)
		}
	}
}

// execStart is the command of a unit.
func execStart(t *testing.T, unit string) string {
	t.Helper()
	for line := range strings.Lines(unit) {
		if command, ok := strings.CutPrefix(line, "ExecStart="); ok {
			return strings.TrimSpace(command)
		}
	}
	t.Fatal("the unit has no ExecStart")
	return ""
}
