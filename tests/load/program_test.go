//go:build linux

package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is the test's view of the child.
type program struct {
	t     *testing.T
	spec  spec
	log   string // its standard error, of all lives
	table *table
	// lagging says which handlers are behind, if that is waited for.
	lagging func() []string
	// busily changes while requests are made and handlers are called.
	busily func() int64

	cmd    *exec.Cmd
	in     *json.Encoder
	exited chan struct{} // closed at the end, of which err says how
	err    error

	mu      sync.Mutex // guards what follows
	ready   bool
	done    *message
	figures *figures
}

// start begins a life, unless there is one.
func (p *program) start() {
	p.t.Helper()
	if p.cmd != nil {
		return
	}
	p.spec.Life++
	text, err := json.Marshal(p.spec)
	if err != nil {
		p.t.Fatal(err)
	}
	errs, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		p.t.Fatal(err)
	}
	defer errs.Close()
	p.cmd = exec.Command(os.Args[0])
	p.cmd.Env = append(os.Environ(), specEnv+"="+string(text), "GOTRACEBACK=all")
	p.cmd.Stderr = errs
	in, err := p.cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.in, p.exited = json.NewEncoder(in), make(chan struct{})
	p.mu.Lock()
	p.ready, p.done = false, nil
	p.mu.Unlock()
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	go p.listen(p.cmd, out, p.exited)
}

// listen takes the messages of a life, until it has ended.
func (p *program) listen(cmd *exec.Cmd, out io.Reader, exited chan struct{}) {
	for lines := json.NewDecoder(out); ; {
		var m message
		if lines.Decode(&m) != nil {
			break // killed, perhaps in the middle of a line
		}
		p.mu.Lock()
		p.ready = p.ready || m.Ready
		if m.Done != "" {
			p.done = &m
		}
		if m.Status != nil {
			p.figures.add(m.Status)
		}
		p.mu.Unlock()
	}
	p.err = cmd.Wait()
	close(exited)
}

// kill sends SIGKILL.
func (p *program) kill() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.exited
	p.cmd = nil
	p.complain()
}

// ask sends an order. The answer is awaited by answered.
func (p *program) ask(o order) {
	p.t.Helper()
	p.mu.Lock()
	p.done = nil
	p.mu.Unlock()
	if err := p.in.Encode(o); err != nil {
		p.fail("it takes no order: %v", err)
	}
}

// do sends an order, and waits until it is done.
func (p *program) do(o order) time.Duration {
	p.t.Helper()
	p.ask(o)
	p.wait("it was asked for "+o.Do, unless(p.answered), func() int64 { return 0 }) // whatever else it does meanwhile
	if p.done.Err != "" {
		p.fail("%s: %s", o.Do, p.done.Err)
	}
	return p.done.Took
}

func (p *program) answered() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done != nil
}

// end ends the life in order.
func (p *program) end() {
	p.t.Helper()
	p.do(order{Do: doEnd})
	p.await("it was asked to end", func() bool { return p.gone() })
	if p.err != nil {
		p.fail("its end: %v", p.err)
	}
	p.cmd = nil
	p.complain()
}

func (p *program) gone() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// patience is how long nothing may move.
const patience = 3 * time.Minute

// await waits for a condition. As long as requests are made and handlers are called, that
// may take any time.
func (p *program) await(since string, is func() bool) {
	p.t.Helper()
	p.moving(since, unless(is))
}

// unless is 0 if a condition holds, and 1 otherwise.
func unless(is func() bool) func() int64 {
	return func() int64 {
		if is() {
			return 0
		}
		return 1
	}
}

// moving waits until a number is 0. As long as it changes, or requests are made and
// handlers are called, that may take any time.
func (p *program) moving(since string, number func() int64) {
	p.t.Helper()
	p.wait(since, number, p.busily)
}

// wait waits until number returns 0, at most for patience if neither its result nor that of
// busy changes.
func (p *program) wait(since string, number, busy func() int64) {
	p.t.Helper()
	was, busily, at := number(), busy(), time.Now()
	for tick := time.NewTicker(20 * time.Millisecond); was != 0; <-tick.C {
		gone := p.cmd == nil || p.gone()
		n := number()
		if n == 0 {
			return
		}
		if gone {
			p.fail("it has ended by itself since %s: %v", since, p.err)
		}
		if b := busy(); n != was || b != busily {
			was, busily, at = n, b, time.Now()
		}
		if time.Since(at) > patience {
			p.hangs(since, n)
		}
	}
}

// hangs fails the test with all goroutines.
func (p *program) hangs(since string, n int64) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGUSR1) // it may have ended: there are no goroutines then
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline) && !strings.Contains(p.errors(), dumped); {
		<-time.After(100 * time.Millisecond)
	}
	lagging := ""
	if p.lagging != nil {
		lagging = "\n" + strings.Join(p.lagging(), "\n")
	}
	p.fail("nothing has moved for %v since %s (%d)%s", patience, since, n, lagging)
}

// complain fails the test if a life has found a fault.
func (p *program) complain() {
	p.t.Helper()
	log := p.errors()
	for _, bad := range []string{"FAULT ", "DATA RACE", "panic: ", "fatal error: "} {
		if at := strings.Index(log, bad); at >= 0 {
			p.t.Fatalf("life %d, %d faults:\n%s", p.spec.Life, p.table.words[faults].Load(),
				log[max(0, at-2000):min(len(log), at+20_000)])
		}
	}
}

func (p *program) fail(format string, a ...any) {
	p.t.Helper()
	log := p.errors()
	p.t.Fatalf("life %d: %s\nits errors:\n%s", p.spec.Life, fmt.Sprintf(format, a...), log[max(0, len(log)-100_000):])
}

// errors are its standard error.
func (p *program) errors() string {
	p.t.Helper()
	log, err := os.ReadFile(p.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		p.t.Fatal(err)
	}
	return string(log)
}
