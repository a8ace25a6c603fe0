package cli

import (
	"context"
	"encoding/json"
	"errors"
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
// does not answer.
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
	var running sync.WaitGroup
	for _, args := range [][]string{{"get", "pods", "-A"}, {"describe", "pods", "-A"}, {"status"}, {"export", "pods", "-A"}, {"serve"}, {"check"}} {
		running.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, kubewake, append(args, "--db", path)...).CombinedOutput()
			if err == nil || ctx.Err() != nil || !strings.Contains(string(out), "it does not answer; is it stopped or too busy?") {
				t.Errorf("%s: %v, %v\n%s", args, err, ctx.Err(), out)
			}
		})
	}
	running.Wait()
}
