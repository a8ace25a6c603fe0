package kubectl

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// cli is kubectl with two kubeconfigs, and kubewake with a file.
type cli struct {
	path, home   string
	server, file string
	kubewake, db string
}

// inProcess are kubectl's commands that kubewake has.
var inProcess = []string{"describe", "events", "wait", "api-resources", "api-versions"}

// ran is the result of one command.
type ran struct {
	out, err string
	code     int
}

// testKubectl: kubectl shows the same objects of the server and of a file, in all
// formats, with the same errors and exit codes. So do its commands in kubewake.
func testKubectl(t *testing.T, w *world) {
	path, err := apiserver.Kubectl()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c := &cli{path: path, home: dir, server: filepath.Join(dir, "server"), file: filepath.Join(dir, "file")}
	writeConfig(t, c.server, w.Config())
	host, db := w.mirror(t, boltstore.FormTyped)
	writeConfig(t, c.file, &rest.Config{Host: host})
	c.db, c.kubewake = db, filepath.Join(dir, "kubewake")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", c.kubewake, ".")
	build.Dir = filepath.Join("..", "..", "cmd", "kubewake")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var names []string
	for _, r := range w.types {
		names = append(names, r.Resource.GroupResource().String())
	}
	all := strings.Join(names, ",")
	for _, command := range [][]string{
		// Each kind, in each format.
		{"get", all},
		{"get", all, "-o", "wide"},
		{"get", all, "-o", "json"},
		{"get", all, "-o", "yaml"},
		{"get", all, "-o", "name"},
		{"get", all, "-o", `jsonpath={range .items[*]}{.kind}/{.metadata.name}{"\n"}{end}`},
		{"get", all, "-o", "custom-columns=KIND:.kind,NAME:.metadata.name,UID:.metadata.uid,NONE:.spec.none"},
		{"get", all, "-A", "-o", "wide", "--show-labels"},
		// One type, some objects.
		{"get", "po"},
		{"get", "pods", "-o", "json"},
		{"get", "pods", "-o", "yaml", "--show-managed-fields"},
		{"get", "pods", "--chunk-size=3"},
		{"get", "pods", "--no-headers"},
		{"get", "pods", "-L", "app,state"},
		{"get", "pods", "--sort-by=.metadata.uid"},
		{"get", "pods", "--show-kind"},
		{"get", "pods", "running", "gated"},
		{"get", "pods", "running", "-o", "yaml"},
		{"get", "pods", "running", "-o", "jsonpath={.status.phase}"},
		{"get", "pod/running", "svc/plain", "deploy/web"},
		{"get", "pod/running", "svc/plain", "-o", "name"},
		{"get", "gd"},
		{"get", "gadget.v1.example.com/full", "-o", "wide"},
		{"get", "tools"},
		{"get", "all"},
		{"get", "cm,all"},
		{"api-resources", "--api-group=example.com"},
		{"get", "--raw", "/api/v1/namespaces/shop/pods/running"},
		// Selectors.
		{"get", "pods", "-l", "app=web,state!=gated"},
		{"get", "pods", "-l", "state in (running, lost)", "-o", "name"},
		{"get", "pods", "-l", "app=none"},
		{"get", "pods", "--field-selector", "status.phase=Running"},
		{"get", "pods", "--field-selector", "spec.nodeName=n1,metadata.name!=none", "-o", "name"},
		{"get", "events", "--field-selector", "involvedObject.name=crashing,involvedObject.kind=Pod"},
		{"get", "events", "--field-selector", "source=example.com/agent", "-o", "name"},
		{"get", "jobs", "--field-selector", "status.successful=2"},
		{"get", "secrets", "--field-selector", "type=example.com/token"},
		{"get", "nodes", "--field-selector", "spec.unschedulable=true"},
		// Nothing, and errors.
		{"get", "pods", "-n", "none"},
		{"get", "pods", "-n", "none", "-o", "json"},
		{"get", "pod/none"},
		{"get", "pods", "running", "none", "-o", "name"},
		{"get", "pods", "none", "--ignore-not-found"},
		{"get", "node", "none"},
		{"get", "nonsense"},
		{"get", "pods.example.com"},
		{"get", "pods", "-l", "a=b=c"},
		{"get", "pods", "--field-selector", "spec.none=x"},
		{"get", "configmaps", "--field-selector", "data=x"},
		{"get", "gadgets", "--field-selector", "spec.size=3"},
		{"get", "pods", "-o", "nonsense"},
		{"get", "--raw", "/api/v1/namespaces/shop/pods/none"},
		// Other commands that read.
		{"describe", "pod", "crashing"},
		{"describe", "configmap", "settings"},
		{"describe", "secret", "token"},
		{"describe", "node", "n2"},
		{"describe", "pvc", "bound"},
		{"describe", "gadget", "full"},
		{"describe", "pod", "none"},
		{"describe", "pods", "-l", "app=web"},
		{"describe", "deploy/web", "svc/plain"},
		{"describe", "nonsense", "x"},
		{"events"},
		{"events", "-o", "name"},
		{"events", "--types", "Warning", "--no-headers"},
		{"events", "--for", "pod/crashing"},
		{"wait", "--for=condition=Ready", "pod/running", "--timeout=30s"},
		{"wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/completed", "--timeout=30s"},
		{"wait", "--for=delete", "pod/none", "--timeout=30s"},
		{"wait", "--for=condition=Ready", "pod/none", "--timeout=30s"},
	} {
		c.compare(t, command)
	}
}

func writeConfig(t *testing.T, path string, cfg *rest.Config) {
	t.Helper()
	out := clientcmdapi.NewConfig()
	out.Clusters["c"] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	out.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: cfg.BearerToken}
	out.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u", Namespace: shop}
	out.CurrentContext = "x"
	if err := clientcmd.WriteToFile(*out, path); err != nil {
		t.Fatal(err)
	}
}

func (c *cli) compare(t *testing.T, command []string) {
	t.Helper()
	server := c.run(t, c.path, c.server, command)
	c.equal(t, "kubectl", command, server, c.run(t, c.path, c.file, command))
	if isKubectls(command) {
		if command[0] == "get" {
			command = append(slices.Clone(command), "--show-secrets")
		}
		own := c.run(t, c.kubewake, c.file, command)
		own.err = confirmed.ReplaceAllString(own.err, "")
		c.equal(t, "kubewake", command, server, own)
	}
}

// isKubectls says whether kubewake runs kubectl's code for a command, and not its own get.
func isKubectls(command []string) bool {
	if command[0] != "get" {
		return slices.Contains(inProcess, command[0])
	}
	if strings.Contains(command[1], ",") || command[1] == "all" || command[1] == "--raw" {
		return true
	}
	return slices.ContainsFunc(command, func(arg string) bool {
		return slices.ContainsFunc([]string{"-L", "--sort-by", "--field-selector", "--show-", "--chunk-size",
			"--ignore-", "jsonpath", "custom-columns", "svc/"}, func(only string) bool {
			return strings.HasPrefix(arg, only)
		})
	})
}

// equal compares a command's result on a file with kubectl's on the server.
func (c *cli) equal(t *testing.T, program string, command []string, server, file ran) {
	t.Helper()
	line := program + " " + strings.Join(command, " ")
	if len(line) > 100 {
		line = line[:100] + "…"
	}
	if server.code != file.code {
		t.Errorf("%s: exit code %d, with the server %d", line, file.code, server.code)
	}
	if server.err != file.err {
		t.Errorf("%s: stderr:\n%s", line, differences(server.err, file.err))
	}
	if server.out != file.out {
		t.Errorf("%s:\n%s", line, differences(server.out, file.out))
	}
}

var (
	ages    = regexp.MustCompile(`\b([0-9]+[smhdy])+\b`)
	blanks  = regexp.MustCompile(` +`)
	rulings = regexp.MustCompile(`-{4,}`)
	// confirmed matches kubewake's line about the age of the data.
	confirmed = regexp.MustCompile(`(?m)^[a-z0-9.]+: confirmed by the server AGE ago\n`)
)

// run runs a command. Ages and the widths of columns are normalized.
func (c *cli) run(t *testing.T, program, config string, command []string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, command...)
	cmd.Env = []string{"HOME=" + c.home, "KUBECONFIG=" + config, "KUBEWAKE_DB=" + c.db, "PATH=" + os.Getenv("PATH")}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	r := ran{}
	var exit *exec.ExitError
	if err := cmd.Run(); errors.As(err, &exit) {
		r.code = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	plain := func(text string) string {
		text = rulings.ReplaceAllString(blanks.ReplaceAllString(ages.ReplaceAllString(text, "AGE"), " "), "----")
		// A file does not know that a type is deprecated.
		return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
			return strings.HasPrefix(line, "Warning: v1 Endpoints")
		}), "\n")
	}
	r.out, r.err = plain(out.String()), plain(errs.String())
	return r
}
