package examples

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestSystemdUnit runs the unit's command for two lives. The API is served, the unit's
// reload makes it mirror another type, a SIGTERM ends it in order, and the second life
// reads nothing again.
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
	text, err := os.ReadFile("deploy/etc/kubewake/mirror.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "mirror.yaml")
	configure := func(types string) {
		t.Helper()
		changed := strings.NewReplacer("/etc/kubewake/kubeconfig", kubeconfig, "[pods, configmaps]",
			types).Replace(string(text))
		if err := os.WriteFile(config, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	configure("[pods, configmaps]")
	args := strings.Fields(strings.NewReplacer("${STATE_DIRECTORY}", dir, "/etc/kubewake/mirror.yaml",
		config).Replace(inUnit(t, string(unit), "ExecStart")))
	for life := range 2 {
		sim.ResetRequests()
		p := start(t, dir, nil, built(t, filepath.Base(args[0])), args[1:]...)
		p.complains("configmaps/v1: live at")
		p.complains("pods/v1: live at")
		get := exec.Command(built(t, "kubewake"), "get", "configmaps", "-A", "-o", "name", "--db",
			filepath.Join(dir, "node.db"))
		if out, err := get.CombinedOutput(); err != nil || !strings.Contains(string(out), "configmap/a") {
			t.Errorf("%v: %s", err, out)
		}
		if _, err := os.Stat(filepath.Join(dir, "node.db.api.sock")); err != nil {
			t.Error(err)
		}
		if cost := kubesim.CostOf(sim.Requests()); (fullReads(sim) == 0) != (life == 1) {
			t.Errorf("life %d: %+v", life, cost)
		}
		if life == 1 {
			configure("[pods, configmaps, secrets]")
			reload := strings.Fields(strings.ReplaceAll(inUnit(t, string(unit), "ExecReload"), "$MAINPID",
				fmt.Sprint(p.cmd.Process.Pid)))
			if out, err := exec.Command(reload[0], reload[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			p.complains("secrets/v1: live at")
		}
		p.end()
	}
}

// inUnit returns a setting of a unit.
func inUnit(t *testing.T, unit, name string) string {
	t.Helper()
	for line := range strings.Lines(unit) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return strings.TrimSpace(value)
		}
	}
	t.Fatal("the unit has no " + name)
	return ""
}
