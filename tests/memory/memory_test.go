//go:build linux && !race

package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/internal/podgen"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const pods = 10_000

// most is how much anonymous memory a program may take while it catches up, whatever it
// missed: the mark of 48 MB, and an addition for a busy machine. near is how much more
// than a quiet program it may have once the garbage has been collected.
//
// A peak depends on when Go collects garbage, and that on when the machine lets it. A
// program above the bound is therefore measured up to tries times, each time over as many
// new changes, and the smallest peak counts: memory that the library holds, or allocates
// faster than a collection can follow, is there each time.
const (
	most  = 56 << 20
	near  = 20 << 20
	tries = 3
)

type server struct {
	t    *testing.T
	sim  *kubesim.Server
	pods []*corev1.Pod
	gen  *podgen.Generator
	turn int
	dir  string
}

func newServer(t *testing.T) *server {
	s := &server{t: t, sim: kubesim.New(kubesim.Options{WatchCacheSize: 100_000, HistorySize: 1}), gen: podgen.New(1),
		dir: t.TempDir()}
	if _, err := s.sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.sim.Close)
	seen := map[string]bool{}
	for i := 0; len(s.pods) < pods; i++ {
		p := s.gen.Pod(i)
		if !seen[p.Namespace] {
			seen[p.Namespace] = true
			if err := s.sim.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}); err != nil &&
				!apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		if seen[p.Namespace+"/"+p.Name] {
			continue
		}
		seen[p.Namespace+"/"+p.Name] = true
		p.ResourceVersion = ""
		if err := s.sim.Create(p); err != nil {
			t.Fatal(err)
		}
		s.pods = append(s.pods, p)
	}
	return s
}

// change makes n changes that no watch sees.
func (s *server) change(n int) {
	s.t.Helper()
	for range n {
		p := s.pods[s.turn*7%pods]
		p.ResourceVersion = ""
		s.gen.Mutate(p, s.turn/pods)
		s.turn++
		if err := s.sim.Update(p); err != nil {
			s.t.Fatal(err)
		}
	}
}

// miss makes the changes of m that no watch sees, and expires the watch if m says so.
func (s *server) miss(m missed) {
	s.t.Helper()
	s.change(m.changes)
	if !m.expired {
		return
	}
	s.sim.Compact()
	if err := s.sim.Restart(kubesim.RestartOptions{}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) run(t *testing.T, sp spec) (r report) {
	t.Helper()
	sp.Host, sp.Version = s.sim.URL(), strconv.FormatUint(s.sim.Revision(), 10)
	text, err := json.Marshal(sp)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), specEnv+"="+string(text))
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatal(err, log.String())
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		t.Fatal(err, out.String())
	}
	return r
}

func mb(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// use is a way to use the library.
type use struct {
	name     string
	protobuf bool
	config   config
}

var everything = config{Indices: true, Keyset: true, Packed: true, Durables: 3, Previous: true}

var uses = []use{
	{"plain", true, config{}},
	{"plain, json", false, config{}},
	{"indices and a transform", true, config{Indices: true}},
	{"keyset", true, config{Keyset: true}},
	{"packed", true, config{Packed: true}},
	{"a durable handler", true, config{Durables: 1}},
	{"everything", true, everything},
	{"everything, json", false, everything},
}

// missed describes the changes that a program finds when it wakes.
type missed struct {
	name    string
	changes int
	expired bool     // the watch cannot go on: it lists
	briefly []string // the uses that are measured, unless all are
}

var misses = []missed{
	{"a watch over 3,000 changes", 3000, false, []string{"plain", "plain, json", "everything"}},
	{"a watch over 30,000 changes", 30_000, false, []string{"a durable handler"}},
	{"a list with 500 changes", 500, true, []string{"everything, json"}}, // they are not staged
	{"a list with 3,000 changes", 3000, true, []string{"plain", "keyset", "packed", "everything", "everything, json"}},
}

// TestCatchUp: however much a program has missed, and however it uses the library, it
// stays small while it catches up, and is small again once its garbage has been collected.
//
// KUBEWAKE_MEMORY=all measures all uses, each for ten seconds after it has caught up.
// KUBEWAKE_MEMORY=<name>[;<name>] does so for these uses. KUBEWAKE_MEMORY_PROFILE is a
// folder for heap profiles near the peaks.
func TestCatchUp(t *testing.T) {
	s := newServer(t)
	long := os.Getenv("KUBEWAKE_MEMORY")
	wants := func(m missed, u use) bool {
		switch long {
		case "":
			return slices.Contains(m.briefly, u.name)
		case "all":
			return true
		}
		return slices.Contains(strings.Split(long, ";"), u.name)
	}
	file := func(u use) string { return filepath.Join(s.dir, u.name+".db") }
	quiet := map[string]report{}
	for _, u := range uses {
		if !slices.ContainsFunc(misses, func(m missed) bool { return wants(m, u) }) {
			continue
		}
		first := s.run(t, spec{DB: file(u), Protobuf: u.protobuf, Config: u.config})
		quiet[u.name] = s.run(t, spec{DB: file(u), Protobuf: u.protobuf, Config: u.config, Settle: time.Second})
		t.Logf("%s: first list %s; nothing missed %s, at most %s", u.name, mb(first.Peak), mb(quiet[u.name].Settled),
			mb(quiet[u.name].Peak))
	}
	for _, m := range misses {
		s.miss(m)
		for _, u := range uses {
			if !wants(m, u) {
				continue
			}
			t.Run(m.name+", "+u.name, func(t *testing.T) {
				enough := quiet[u.name].Settled + near
				sp := spec{DB: file(u), Protobuf: u.protobuf, Config: u.config, Settle: 10 * time.Second}
				if long == "" {
					sp.Enough = enough
				}
				if dir := os.Getenv("KUBEWAKE_MEMORY_PROFILE"); dir != "" {
					sp.Profile = filepath.Join(dir,
						strings.NewReplacer(" ", "-", ",", "").Replace(m.name+" "+u.name)+".prof")
				}
				r := s.run(t, sp)
				for try := 1; try < tries && r.Peak > most; try++ {
					t.Logf("peak %s: once more", mb(r.Peak))
					s.miss(m)
					if again := s.run(t, sp); again.Peak < r.Peak {
						r = again
					}
				}
				t.Logf("peak %s, then %s, near that after %v; %d calls in %v", mb(r.Peak), mb(r.Settled), r.Quiet,
					r.Told, r.Took.Round(time.Millisecond))
				if r.Classes != nil {
					t.Log("Go's memory near the peak, in MiB: ", r.Classes)
				}
				if r.Told < int64(pods) {
					t.Errorf("%d calls", r.Told)
				}
				if r.Peak > most {
					t.Errorf("%s of anonymous memory", mb(r.Peak))
				}
				if r.Settled > enough {
					t.Errorf("%s after a collection, a quiet one has %s", mb(r.Settled), mb(quiet[u.name].Settled))
				}
			})
		}
	}
}
