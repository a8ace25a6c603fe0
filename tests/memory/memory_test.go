//go:build linux && !race

package memory

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

// most is how much anonymous memory a program may take while it catches up,
// whatever it missed: the mark of 48 MB, and what a restless machine adds. near is
// how much more than a quiet one it may have ten seconds later.
const (
	most = 56 << 20
	near = 20 << 20
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
	s := &server{t: t, sim: kubesim.New(kubesim.Options{WatchCacheSize: 100_000, HistorySize: 1}), gen: podgen.New(1), dir: t.TempDir()}
	if _, err := s.sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.sim.Close)
	seen := map[string]bool{}
	for i := 0; len(s.pods) < pods; i++ {
		p := s.gen.Pod(i)
		if !seen[p.Namespace] {
			seen[p.Namespace] = true
			if err := s.sim.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.Namespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
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

// change makes n changes that nobody watches.
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

func (s *server) run(sp spec) (r report) {
	s.t.Helper()
	sp.Host, sp.Version = s.sim.URL(), strconv.FormatUint(s.sim.Revision(), 10)
	text, err := json.Marshal(sp)
	if err != nil {
		s.t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), self)
	cmd.Env = append(os.Environ(), specEnv+"="+string(text))
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		s.t.Fatal(err, log.String())
	}
	if err := json.Unmarshal(out.Bytes(), &r); err != nil {
		s.t.Fatal(err, out.String())
	}
	return r
}

func mb(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/(1<<20)) }

// TestCatchUp: however much a program has missed, it stays small while it
// catches up, and is small again soon.
func TestCatchUp(t *testing.T) {
	top, s := t, newServer(t)
	for _, protobuf := range []bool{true, false} {
		form := map[bool]string{true: "protobuf", false: "json"}[protobuf]
		db := filepath.Join(s.dir, form+".db")
		s.run(spec{DB: db, Protobuf: protobuf})
		quiet := s.run(spec{DB: db, Protobuf: protobuf, Settle: 10 * time.Second})
		t.Logf("%s, nothing missed: %s, at most %s", form, mb(quiet.Settled), mb(quiet.Peak))
		for _, c := range []struct {
			name    string
			changes int
			expired bool
			brief   bool // in JSON, too
		}{
			{"a watch over 3,000 changes", 3000, false, true},
			{"a watch over 30,000 changes", 30_000, false, false},
			{"a list with 3,000 changes", 3000, true, true},
		} {
			if !protobuf && !c.brief {
				continue
			}
			t.Run(form+", "+c.name, func(t *testing.T) {
				s.t = t
				defer func() { s.t = top }()
				s.change(c.changes)
				if c.expired {
					s.sim.Compact()
					if err := s.sim.Restart(kubesim.RestartOptions{}); err != nil {
						t.Fatal(err)
					}
				}
				sp := spec{DB: db, Protobuf: protobuf, Settle: 10 * time.Second}
				if dir := os.Getenv("KUBEWAKE_MEMORY_PROFILE"); dir != "" {
					sp.Profile = filepath.Join(dir, strings.NewReplacer(" ", "-", ",", "").Replace(form+" "+c.name)+".prof")
				}
				r := s.run(sp)
				t.Logf("peak %s, %s ten seconds later, near that after %v; %d calls in %v", mb(r.Peak), mb(r.Settled), r.Quiet, r.Told, r.Took.Round(time.Millisecond))
				if r.Told < int64(pods) {
					t.Errorf("%d calls", r.Told)
				}
				if r.Peak > most {
					t.Errorf("%s of anonymous memory", mb(r.Peak))
				}
				if r.Settled > quiet.Settled+near {
					t.Errorf("%s ten seconds later, a quiet one has %s", mb(r.Settled), mb(quiet.Settled))
				}
			})
		}
	}
}
