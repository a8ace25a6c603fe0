package osfile

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"
)

const tellUptime = "KUBEWAKE_TELL_UPTIME"

func TestMain(m *testing.M) {
	if os.Getenv(tellUptime) != "" {
		fmt.Print(Uptime(), " ", Slept())
		return
	}
	os.Exit(m.Run())
}

// TestTimeNamespace: a time namespace shifts the clocks that begin at boot, and keeps the
// boot's name. The time since boot is still the machine's.
func TestTimeNamespace(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	unshare := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--time"}, args...)...)
		cmd.Env = append(os.Environ(), tellUptime+"=1")
		return cmd.Output()
	}
	if _, err := unshare("true"); err != nil {
		t.Skip("no time namespace may be made here: ", err)
	}
	for _, shift := range []string{"-1", "3600000", "100000000"} {
		before, slept := Uptime(), Slept()
		out, err := unshare("--boottime", shift, "--monotonic", "7000000", self)
		if err != nil {
			t.Fatal(err)
		}
		after := Uptime()
		var up, nap string
		if _, err := fmt.Sscan(string(out), &up, &nap); err != nil {
			t.Fatal(err, string(out))
		}
		if d, err := time.ParseDuration(up); err != nil || d < before || d > after {
			t.Errorf("shifted by %s s: up for %s, not %s to %s", shift, up, before, after)
		}
		if d, err := time.ParseDuration(nap); err != nil || (d-slept).Abs() > time.Second {
			t.Errorf("shifted by %s s: slept for %s, not %s", shift, nap, slept)
		}
	}
}
