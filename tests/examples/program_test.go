package examples

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// simulator is a server, and a kubeconfig for it.
func simulator(t *testing.T) (*kubesim.Server, string) {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	c := api.NewConfig()
	c.Clusters["sim"] = &api.Cluster{Server: sim.URL()}
	c.Contexts["sim"] = &api.Context{Cluster: "sim"}
	c.CurrentContext = "sim"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return sim, path
}

var bins struct {
	sync.Once
	dir string
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if bins.dir != "" {
		if err := os.RemoveAll(bins.dir); err != nil {
			panic(err)
		}
	}
	os.Exit(code)
}

// built returns the path of an example, or of the command. All are built once.
func built(t *testing.T, name string) string {
	t.Helper()
	bins.Do(func() {
		if bins.dir, bins.err = os.MkdirTemp("", "examples-"); bins.err != nil {
			return
		}
		if bins.err = os.Chmod(bins.dir, 0o755); bins.err != nil { // other users run them, too
			return
		}
		for _, at := range [][]string{{".", "./controller/...", "./edge", "./shapes"}, {"../../cmd/kubewake", "."}} {
			cmd := exec.Command("go", append([]string{"build", "-o", bins.dir + "/"}, at[1:]...)...)
			cmd.Dir = at[0]
			if out, err := cmd.CombinedOutput(); err != nil {
				bins.err = fmt.Errorf("%v: %w\n%s", cmd.Args, err, out)
				return
			}
		}
	})
	if bins.err != nil {
		t.Fatal(bins.err)
	}
	return filepath.Join(bins.dir, name)
}

// program is a running program.
type program struct {
	t    *testing.T
	cmd  *exec.Cmd
	said *lines // on its standard output
	errs *lines
	read sync.WaitGroup
}

// start runs a program in a folder until it is ended, at the latest with the test.
func start(t *testing.T, dir string, env []string, bin string, args ...string) *program {
	t.Helper()
	return startAs(t, nil, dir, env, bin, args...)
}

// startAs is start as another user.
func startAs(t *testing.T, user *syscall.SysProcAttr, dir string, env []string, bin string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(bin, args...), said: newLines(), errs: newLines()}
	p.cmd.Dir, p.cmd.Env, p.cmd.SysProcAttr = dir, append(os.Environ(), env...), user
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.read.Go(func() { p.said.from(out) })
	p.read.Go(func() { p.errs.from(errs) })
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			_ = p.kill() // it was to be ended in any case
		}
	})
	return p
}

// kill sends SIGKILL.
func (p *program) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	p.read.Wait()
	if err := p.cmd.Wait(); err == nil {
		p.t.Error("it ended by itself")
	}
	return nil
}

// end sends SIGTERM, after which the program must end in order.
func (p *program) end() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	if err := p.wait(); err != nil {
		p.t.Fatalf("SIGTERM: %v\n%s", err, p.all())
	}
}

// wait waits until it has ended.
func (p *program) wait() error {
	p.read.Wait()
	return p.cmd.Wait()
}

func (p *program) all() string {
	return strings.Join(append(p.said.all(), p.errs.all()...), "\n")
}

// says waits until it has written lines that begin with all of these.
func (p *program) says(want ...string) {
	p.t.Helper()
	if missing := p.said.await(want); missing != "" {
		p.t.Fatalf("it does not say %q, but\n%s", missing, p.all())
	}
}

// complains is says on the standard error, anywhere in a line.
func (p *program) complains(want string) {
	p.t.Helper()
	if missing := p.errs.await([]string{want}); missing != "" {
		p.t.Fatalf("it does not say %q, but\n%s", missing, p.all())
	}
}

// lines are the lines of a program's output.
type lines struct {
	mu    sync.Mutex
	more  *sync.Cond
	got   []string
	ended bool
}

func newLines() *lines {
	l := &lines{}
	l.more = sync.NewCond(&l.mu)
	return l
}

func (l *lines) from(r io.Reader) {
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		l.mu.Lock()
		l.got = append(l.got, scan.Text())
		l.mu.Unlock()
		l.more.Broadcast()
	}
	l.mu.Lock()
	l.ended = true
	l.mu.Unlock()
	l.more.Broadcast()
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

// over says whether the output has ended.
func (l *lines) over() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ended
}

// await waits until some line has each text. It returns one that is missing after a
// minute, or at the end.
func (l *lines) await(want []string) (missing string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.more.Broadcast() })()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		missing = ""
		for _, w := range want {
			if !slices.ContainsFunc(l.got, func(line string) bool { return strings.Contains(line, w) }) {
				missing = w
			}
		}
		if missing == "" || l.ended || ctx.Err() != nil {
			return missing
		}
		l.more.Wait()
	}
}
