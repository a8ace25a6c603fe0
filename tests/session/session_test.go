package session

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/tests/apiserver"
)

const docs = "../../docs"

// TestSessions runs the pages on one server, since it takes seconds to start. With
// KUBEWAKE_RECORD=1 it writes differing output into the pages.
func TestSessions(t *testing.T) {
	s := apiserver.Start(t, apiserver.Options{NoAudit: true})
	bin := filepath.Dir(apiserver.Kubewake(t))
	kubectl, err := apiserver.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kubectl, filepath.Join(bin, "kubectl")); err != nil {
		t.Fatal(err)
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "controller"),
		"../examples/controller/stock")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Run("terminal", func(t *testing.T) { terminal(t, s, bin) })
	t.Run("morning", func(t *testing.T) { morning(t, s, bin) })
}

// shop makes the objects of the pages, in a shell beside the server.
func shop(t *testing.T, s *apiserver.Server, bin string) *shell {
	sh := home(t, bin)
	place(t, s.Kubeconfig(t), filepath.Join(sh.cmd.Dir, ".kube", "config"))
	for _, name := range []string{"shop.yaml", "running.yaml"} {
		place(t, filepath.Join("testdata", name), filepath.Join(sh.cmd.Dir, name))
	}
	// The server makes a config map of its own after a while. There is no controller that ends a namespace.
	out, err := sh.run("kubectl wait --for=create configmap/kube-apiserver-legacy-service-account-token-tracking " +
		"-n kube-system --timeout=50s && kubectl delete pods,configmaps --all -n shop --force && kubectl apply -f " +
		"shop.yaml && kubectl apply -f running.yaml --server-side --force-conflicts --subresource=status && echo made")
	if err != nil || !slices.Contains(out, "made") {
		t.Fatalf("%v: %s", err, strings.Join(out, "\n"))
	}
	return sh
}

// terminal: this user, beside the server.
func terminal(t *testing.T, s *apiserver.Server, bin string) {
	sh := shop(t, s, bin)
	replay(t, "session.md", func(_, command string) ([]string, error) { return sh.run(command) })
}

// morning: a node whose link is cut, and an office beside the server.
func morning(t *testing.T, s *apiserver.Server, bin string) {
	link := s.Link(t)
	office, node := shop(t, s, bin), home(t, bin)
	place(t, link.Kubeconfig(t, s), filepath.Join(node.cmd.Dir, "server.kubeconfig"))
	replay(t, "offline-morning.md", func(host, command string) ([]string, error) {
		switch {
		case host == "office":
			return office.run(command)
		case host == "node":
			return node.run(command)
		case command == "link down":
			link.Lose()
			return nil, nil
		case command == "link up":
			link.Restore()
			return nil, nil
		}
		return nil, fmt.Errorf("there is no host %q", host)
	})
}

// home is a shell in a folder of its own.
func home(t *testing.T, bin string) *shell {
	dir := t.TempDir()
	config := filepath.Join(dir, ".kube", "config")
	if err := os.Mkdir(filepath.Dir(config), 0o700); err != nil {
		t.Fatal(err)
	}
	return newShell(t, dir, "HOME="+dir, "KUBECONFIG="+config, "PATH="+bin+":"+os.Getenv("PATH"), "TZ=UTC")
}

func place(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// replay runs the commands of a page and compares their output with the page.
func replay(t *testing.T, name string, run func(host, command string) ([]string, error)) {
	path := filepath.Join(docs, name)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	steps := parse(string(page))
	if len(steps) < 10 {
		t.Fatalf("%s has %d commands", name, len(steps))
	}
	record := os.Getenv("KUBEWAKE_RECORD") != ""
	var outputs [][]string
	for _, s := range steps {
		began := time.Now()
		came, err := run(s.host, s.command)
		t.Logf("%.1f s: %s$ %s\n%s", time.Since(began).Seconds(), s.host, s.command, strings.Join(came, "\n"))
		if err != nil {
			t.Fatalf("%s:%d: %s: %v", name, s.line, s.command, err)
		}
		if constant(came) == constant(s.shown) {
			came = s.shown
		} else if !record {
			t.Errorf("%s:%d: %s\nthe page shows\n%s\nand this comes\n%s", name, s.line, s.command,
				strings.Join(s.shown, "\n"), strings.Join(came, "\n"))
		}
		outputs = append(outputs, came)
	}
	if !record {
		return
	}
	if err := os.WriteFile(path, []byte(rewritten(string(page), steps, outputs)), 0o644); err != nil {
		t.Fatal(err)
	}
}
