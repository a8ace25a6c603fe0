package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/live"
)

// TestStoppedMirror: beside a mirror whose process is stopped, commands soon say that it
// does not answer. They also do if the mirror's file was removed.
func TestStoppedMirror(t *testing.T) {
	_, kubeconfig := cluster(t)
	path := filepath.Join(t.TempDir(), "f.db")
	url, log := serving(t, path, kubeconfig)
	await(t, url+"/readyz", 200, "ok", log)
	out, err := exec.Command(kubewake, "status", "-o", "json", "--db", path).Output()
	var st live.Status
	if err := errors.Join(err, json.Unmarshal(out, &st)); err != nil || st.Owner == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	pid := st.Owner.PID
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) }) // it then ends
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	run := func(commands ...[]string) {
		var running sync.WaitGroup
		for _, args := range commands {
			running.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
				defer cancel()
				out, err := exec.CommandContext(ctx, kubewake, append(args, "--db", path)...).CombinedOutput()
				if err == nil || ctx.Err() != nil ||
					!strings.Contains(string(out),
						"it does not answer; is it stopped or too busy, or do 16 other commands read through it") {
					t.Errorf("%s: %v, %v\n%s", args, err, ctx.Err(), out)
				}
			})
		}
		running.Wait()
	}
	reads := [][]string{{"get", "pods", "-A"}, {"get", "pods", "-A", "-o", "jsonpath={.items}"},
		{"describe", "pods", "-A"}, {"status"}, {"export", "pods", "-A"}, {"serve"}}
	run(append(reads, []string{"check"})...)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	run(reads...)
}
