//go:build linux

package load

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// What TestTenant has, and what it allows.
const (
	tenantEvery  = 10                    // one object in so many is the tenant's
	tenantLasts  = 8 * time.Second       // of changes
	tenantWindow = 20 * time.Millisecond // the default of boltstore.Options.Window
	tenantSlack  = 5 * time.Millisecond
	tenantMemory = 64 << 20
	// pendingBytes is more than a pending key without deletes takes in the file.
	pendingBytes = 512
)

// TestTenant: a durable handler that fails for one tenant, a tenth of all keys, holds nobody
// up. While objects change, it is told the others within the window and five milliseconds in
// the median, and no later than a handler that never fails. Memory and file stay bounded. On a
// machine that is too busy to make the changes at their rate, it need only be told them as
// soon as the other handler.
//
// LOAD_OBJECTS and LOAD_RATE set the number of objects, and of changes a second: 20,000 and
// 1,000 by default. `make torture` has 100,000 objects.
func TestTenant(t *testing.T) {
	if raced {
		t.Skip("it measures memory and time, which the race detector multiplies")
	}
	objects, rate := setting(t, "LOAD_OBJECTS", 20_000), setting(t, "LOAD_RATE", 1000)
	sim := kubesim.New(kubesim.Options{WatchCacheSize: 100_000, HistorySize: 1})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	for slot := range objects {
		if err := sim.Create(tenantObject(slot, 0)); err != nil {
			t.Fatal(err)
		}
	}
	c := startTenant(t, tenantSpec{Host: sim.URL(), DB: filepath.Join(t.TempDir(), "load.db"), Objects: objects})
	first := c.next(t) // all have been told once
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
	tick := time.NewTicker(time.Second / time.Duration(rate))
	writes := 0
	for end := time.Now().Add(tenantLasts); time.Now().Before(end); <-tick.C {
		writes++
		if err := sim.Update(tenantObject(rnd.IntN(objects), time.Now().UnixNano())); err != nil {
			t.Fatal(err)
		}
	}
	r := c.end(t, sim.Revision())
	t.Logf("%d objects, told once with %s of anonymous memory: %v", objects, mb(first.Anon), r)
	paced := writes > int(tenantLasts.Seconds())*rate*95/100
	t.Logf("%d changes, at their rate: %v", writes, paced)
	for name, l := range r.Told {
		if paced && l.Median > tenantWindow+tenantSlack {
			t.Errorf("the handler that %s is told changes after %v", name, l.Median)
		}
	}
	r.verify(t, objects)
}

func (r tenantReport) verify(t *testing.T, objects int) {
	t.Helper()
	failing, never := r.Told["fails"], r.Told["never fails"]
	if want := objects / tenantEvery; r.Failing != want || r.Pending != uint64(want) {
		t.Errorf("%d keys fail and %d are pending, want %d", r.Failing, r.Pending, want)
	}
	// Some commits take longer than the window, for both handlers.
	if failing.N == 0 || failing.Median > max(never.Median, tenantWindow)+tenantSlack {
		t.Errorf("the handler that fails is told %d changes after %v, the other one after %v", failing.N,
			failing.Median, never.Median)
	}
	if failing.P99 > max(never.P99, tenantWindow)*5/4+tenantSlack {
		t.Errorf("in one case of a hundred the handler that fails is told after %v, the other one after %v",
			failing.P99, never.P99)
	}
	if r.Anon > tenantMemory {
		t.Errorf("%s of anonymous memory, at most %s", mb(r.Anon), mb(tenantMemory))
	}
	most := (2*r.Objects+2*r.Journal+int64(r.Pending)*pendingBytes)*5/2 + 16<<20
	if r.Size > most {
		t.Errorf("a file of %s, at most %s", mb(r.Size), mb(most))
	}
}

// tenantObject is as it is written at a time, in ns; 0 is the beginning.
func tenantObject(slot int, at int64) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns-%04d", slot/100), Name: fmt.Sprintf("o-%06d", slot)},
		Data:       map[string]string{"at": strconv.FormatInt(at, 10), "text": strings.Repeat("text", 100)},
	}
}

// tenantProgram is the program under test.
type tenantProgram struct {
	cmd *exec.Cmd
	in  *json.Encoder
	out *json.Decoder
	log *strings.Builder
}

func startTenant(t *testing.T, s tenantSpec) *tenantProgram {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	c := &tenantProgram{cmd: exec.Command(os.Args[0]), log: &strings.Builder{}}
	c.cmd.Env = append(os.Environ(), tenantEnv+"="+string(text))
	c.cmd.Stderr = c.log
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out = json.NewEncoder(in), json.NewDecoder(out)
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.cmd.Process.Kill() }) // it may have ended
	return c
}

// next waits for the program's next report.
func (c *tenantProgram) next(t *testing.T) (r tenantReport) {
	t.Helper()
	if err := c.out.Decode(&r); err != nil {
		_ = c.cmd.Process.Kill() // it may have ended
		_ = c.cmd.Wait()         // its log is whole
		log := c.log.String()
		t.Fatalf("no report: %v\n%s", err, log[max(0, len(log)-10_000):])
	}
	return r
}

// end has the program end once it has been told all up to a version.
func (c *tenantProgram) end(t *testing.T, version uint64) tenantReport {
	t.Helper()
	if err := c.in.Encode(version); err != nil {
		t.Fatal(err)
	}
	r := c.next(t)
	if err := c.cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, c.log)
	}
	if lines := strings.Count(c.log.String(), "\n"); lines > 1000 {
		t.Errorf("%d lines are logged", lines)
	}
	return r
}
