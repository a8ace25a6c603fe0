package apiserver

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"
)

// process is a child with a process group of its own, whose output goes to a
// file.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
	err  error         // how it ended; read after done
}

// startProcess runs bin and appends its output to the file log.
func startProcess(name, bin, log string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: log, cmd: exec.Command(bin, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.SysProcAttr = sysProcAttr()
	started := make(chan error, 1)
	go func() {
		// The kernel sends the signal at the parent's death when the thread that started
		// the child ends, so that thread waits for the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer out.Close()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.err = p.cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// signal sends to the whole group; if the process has ended, that is not an error.
func (p *process) signal(sig syscall.Signal) { _ = syscall.Kill(-p.cmd.Process.Pid, sig) }

// kill ends the process and waits for it. A nil process counts as ended.
func (p *process) kill() {
	if p == nil {
		return
	}
	p.signal(syscall.SIGKILL)
	<-p.done
}

// frozen calls f while the process is stopped.
func (p *process) frozen(f func() error) error {
	p.signal(syscall.SIGSTOP)
	defer p.signal(syscall.SIGCONT)
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || !status.Stopped() {
			return fmt.Errorf("freeze %s: %w", p.name, p.ended())
		}
		return f()
	}
}

// until polls ready while the process runs, and fails when ctx ends.
func (p *process) until(ctx context.Context, ready func(context.Context) error) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-p.done:
			return p.ended()
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready: %w: %w\n%s", p.name, ctx.Err(), err, p.tail())
		}
	}
}

// ended describes the end of a process that should still run.
func (p *process) ended() error {
	return fmt.Errorf("%s ended\n%s", p.name, p.tail())
}

// tail returns the last lines that the process wrote.
func (p *process) tail() string {
	const lines = 20
	out, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	at := len(out)
	for i := 0; i <= lines && at > 0; i++ {
		at = bytes.LastIndexByte(out[:at], '\n')
	}
	return string(bytes.TrimSpace(out[max(at, 0):]))
}
