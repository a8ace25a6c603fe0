// Package wake kills programs and checks the state with which they wake.
package wake

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/cache"
)

// TestKillOnKubesim is the quick form: the same rounds, with connections that
// break in between, on a program that uses the library.
func TestKillOnKubesim(t *testing.T) {
	t.Parallel()
	takePlace(t)
	rounds(t, newSimulator(t), library, 4, 300)
}

// TestKillOnKubeAPIServer is the promise, on a real API server and the command.
func TestKillOnKubeAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real API server, which make check does not build; make test does")
	}
	takePlace(t)
	t.Parallel()
	rounds(t, newRealServer(t), command(t), 20, 2000)
}

// killed is the program that is killed: a command line for a file and a kubeconfig, and
// the indices that it keeps.
type killed struct {
	cmd      func(db, kubeconfig string) *exec.Cmd
	indexers cache.Indexers
}

// library is this test binary; see child.
var library = killed{
	cmd: func(db, kubeconfig string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), envDB+"="+db, envKubeconfig+"="+kubeconfig)
		return cmd
	},
	indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc, "label": byLabel},
}

// command is kubewake mirror.
func command(t *testing.T) killed {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "kubewake")
	build := exec.Command("go", "build", "-race", "-o", bin, ".")
	build.Dir = "../../cmd/kubewake"
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return killed{
		cmd: func(db, kubeconfig string) *exec.Cmd {
			return exec.Command(bin, "mirror", "pods", "configmaps", "widgets.example.com", "-A", "--events", "--db",
				db, "--kubeconfig", kubeconfig)
		},
		indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc},
	}
}

func rounds(t *testing.T, srv target, what killed, n, objects int) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	w := newWriter(t, srv.Config(), seed)
	w.fill(objects)
	w.indexers = what.indexers
	p := &program{t: t, what: what, db: filepath.Join(t.TempDir(), "wake.db"), kubeconfig: srv.Kubeconfig(t),
		told: filepath.Join(t.TempDir(), "told")}
	t.Cleanup(p.kill)

	p.start()
	p.until(w.mark()) // the first sync
	synced := time.Now()
	for i := range n {
		w.resume()
		p.start()
		pause(rnd, 1200*time.Millisecond)
		srv.Disturb()
		pause(rnd, 200*time.Millisecond)
		p.kill()
		pause(rnd, 300*time.Millisecond)
		p.start()
		pause(rnd, 500*time.Millisecond)
		w.pause()
		marked := time.Now()
		p.until(w.mark())
		told := time.Now()
		p.kill()
		w.verify(p.db, p.told)
		t.Logf("round %d: told after %v, verified in %v", i+1, told.Sub(marked), time.Since(told))
	}
	if reads := srv.FullReads(t, synced); len(reads) > 0 {
		t.Fatalf("after the first sync everything was read again:\n%s", strings.Join(reads, "\n"))
	}
	// The sources of a program ask together at each of a round's starts and after the broken
	// link, and a source for itself if its watch takes another connection than its question.
	if reads := srv.ClusterReads(t, synced); reads > 5*n {
		t.Fatalf("after the first sync it was asked %d times which cluster it is", reads)
	}
	t.Logf("%d rounds, %d writes", n, w.writes)

	expired(t, srv, w, p)
	restored(t, srv, w, p)
}

// expired restarts the server under a living program: 410 for all. Only differences are
// handed on, and one pass of pages is the only full read.
func expired(t *testing.T, srv target, w *writer, p *program) {
	p.start()
	p.until(w.mark())
	before := p.size()
	since := time.Now()
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.until(w.mark())
	p.kill()
	w.verify(p.db, p.told)
	for _, l := range p.lines(before) {
		if !strings.Contains(l, "/"+marker+" ") {
			t.Errorf("told more than what differs: %s", l)
		}
	}
	passes := map[string]int{}
	for _, r := range srv.FullReads(t, since) {
		if !strings.HasPrefix(r, "list ") {
			t.Errorf("not a list: %s", r)
		}
		if !strings.Contains(r, "continue=") {
			passes[strings.SplitN(r, "?", 2)[0]]++
		}
	}
	for r, n := range passes {
		if n != 1 {
			t.Errorf("%s was read %d times", r, n)
		}
	}
	if len(passes) != len(resources) {
		t.Errorf("read: %v", passes)
	}
	// And with the program dead meanwhile, while things change.
	w.resume()
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.start()
	w.pause()
	p.until(w.mark())
	p.kill()
	w.verify(p.db, p.told)
}

func restored(t *testing.T, srv target, w *writer, p *program) {
	for _, alive := range []bool{false, true} {
		restore, err := srv.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p.start()
		names := cloneNames(w.names)
		for range 30 {
			if err := w.write(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.until(w.mark())
		if !alive {
			p.kill()
		}
		if err := restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.names = names
		clear(w.verified) // versions come again, with other objects
		if !alive {
			p.start()
		}
		p.until(w.mark())
		p.kill()
		w.verify(p.db, p.told)
	}
}

func cloneNames(names map[string][][2]string) map[string][][2]string {
	c := map[string][][2]string{}
	for k, v := range names {
		c[k] = append([][2]string(nil), v...)
	}
	return c
}

// pause lets a random time pass: when a program is killed must not depend on
// what it does.
func pause(rnd *rand.Rand, most time.Duration) { <-time.After(time.Duration(rnd.Int64N(int64(most)))) }

// program is a program that is killed and started again.
type program struct {
	t          *testing.T
	what       killed
	db         string
	kubeconfig string
	told       string
	cmd        *exec.Cmd
}

func (p *program) start() {
	p.t.Helper()
	if p.cmd != nil {
		return
	}
	out, err := os.OpenFile(p.told, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer out.Close()
	p.cmd = p.what.cmd(p.db, p.kubeconfig)
	p.cmd.Stdout = out
	errs, err := os.OpenFile(p.told+".err", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer errs.Close()
	p.cmd.Stderr = errs
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
}

// kill sends SIGKILL.
func (p *program) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.cmd = nil
}

func (p *program) read() string {
	b, _ := os.ReadFile(p.told)
	return string(b)
}

func (p *program) size() int { return len(p.read()) }

// lines are those written behind an offset.
func (p *program) lines(from int) []string {
	return strings.Split(strings.TrimSpace(p.read()[from:]), "\n")
}

// until waits for lines to be told.
func (p *program) until(lines []string) {
	p.t.Helper()
	missing := ""
	p.await(func() bool {
		told := ungrouped([]byte(p.read()))
		missing = ""
		for _, l := range lines {
			if !strings.Contains(told, l) {
				missing += l
			}
		}
		return missing == ""
	}, func() string { return "not told:\n" + missing })
}

func (p *program) eventually(what string, is func() bool) {
	p.t.Helper()
	p.await(is, func() string { return "waited in vain for " + what + "; " })
}

// await waits for what must come. It fails after a minute in which the program told nothing:
// how long a backlog takes depends on the disk. It also fails after five in all, or a program
// that tells the same again and again would have no end.
func (p *program) await(is func() bool, failed func() string) {
	p.t.Helper()
	told, began, last := p.size(), time.Now(), time.Now()
	for tick := time.NewTicker(10 * time.Millisecond); !is(); <-tick.C {
		if now := p.size(); now != told {
			told, last = now, time.Now()
		}
		if time.Since(last) > time.Minute || time.Since(began) > 5*time.Minute {
			p.t.Fatal(failed() + p.stuck())
		}
	}
}

// stuck ends the program with SIGQUIT, and returns what it told and said last, with the stacks
// of its goroutines.
func (p *program) stuck() string {
	state := "it did not run"
	if cmd := p.cmd; cmd != nil {
		_ = cmd.Process.Signal(syscall.SIGQUIT) // one that has ended has left its errors
		ended := make(chan struct{})
		go func() {
			_ = cmd.Wait() // the state says how it ended
			close(ended)
		}()
		select {
		case <-ended:
			state = cmd.ProcessState.String()
		case <-time.After(10 * time.Second): // one that the kernel holds says nothing more
			state = "the kernel holds it"
			_ = cmd.Process.Kill() // Wait, in the goroutine above, has its error
		}
		p.cmd = nil
	}
	errs, err := os.ReadFile(p.told + ".err")
	return fmt.Sprintf("%s; told last:\n%s\nits errors (%v):\n%s", state, tail(p.read(), 2000), err,
		tail(string(errs), 100_000))
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }
