package readme

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestServePage runs the command lines of docs/serve.md: the mirror and the server, and as
// kubectl a client with the kubeconfig that the page names. Each flag of the page exists.
func TestServePage(t *testing.T) {
	_, kubeconfig := cluster(t)
	bin := build(t, cmdDir, ".", "kubewake")
	dir := t.TempDir()
	env := append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+dir)
	page, err := os.ReadFile(filepath.Join(root, "docs", "serve.md"))
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, m := range regexp.MustCompile(`(?m)^    (kube.*?)(?: +#.*)?$`).FindAllStringSubmatch(string(page), -1) {
		args := strings.Fields(m[1])
		if args[0] == "kubectl" {
			if args[1] != "--kubeconfig" || strings.Join(args[3:], " ") != "get pods -A" {
				t.Fatalf("this test cannot run %s", m[1])
			}
			cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(dir, args[2]))
			if err != nil {
				t.Fatal(err)
			}
			c, err := kubernetes.NewForConfig(cfg)
			if err != nil {
				t.Fatal(err)
			}
			pods, err := c.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
			if err != nil || len(pods.Items) != 2 {
				t.Errorf("%s: %v %v", m[1], pods, err)
			}
			asked++
			continue
		}
		cmd := exec.Command(bin, args[1:]...)
		cmd.Dir, cmd.Env = dir, env
		ready, count := ": live", 2
		if args[1] == "serve" {
			ready, count = "https://", 1
		}
		var log lockedBuffer
		cmd.Stderr = &log
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		t.Cleanup(func() {
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Error(err)
			}
			if err := <-ended; err != nil {
				t.Errorf("%s: %v\n%s", m[1], err, log.String())
			}
		})
		deadline := time.After(time.Minute)
		for tick := time.NewTicker(20 * time.Millisecond); strings.Count(log.String(), ready) < count; {
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s is not ready:\n%s", m[1], log.String())
			}
		}
	}
	if asked == 0 {
		t.Error("the page asks nothing")
	}
	help, err := exec.Command(bin, "serve", "--help").CombinedOutput()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("`(--[a-z-]+)[^`]*`").FindAllStringSubmatch(string(page), -1) {
		if !strings.Contains(string(help), m[1]+" ") && m[1] != "--serve" {
			t.Errorf("serve has no flag %s", m[1])
		}
	}
}
