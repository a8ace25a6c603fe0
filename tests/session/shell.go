package session

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// patience bounds each command.
const patience = time.Minute

// shell is a terminal: a bash that lives as long as its test, with all that it has begun.
type shell struct {
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
	err bytes.Buffer // what it says of itself
}

func newShell(t *testing.T, dir string, env ...string) *shell {
	t.Helper()
	s := &shell{cmd: exec.Command("bash", "--noprofile", "--norc")}
	s.cmd.Dir, s.cmd.Env, s.cmd.Stderr = dir, env, &s.err
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := s.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.in, s.out = in, bufio.NewReader(out)
	t.Cleanup(func() {
		s.kill()
		if err := s.cmd.Wait(); err == nil {
			t.Error("a shell that is killed ends by itself")
		}
		if t.Failed() {
			t.Logf("the shell said: %s", &s.err)
		}
	})
	return s
}

// kill ends the shell's process group.
func (s *shell) kill() { _ = syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL) } // it may have ended

// killed is what bash says of a job, at a moment of its own.
var killed = regexp.MustCompile(`^\w+: line \d+: +\d+ (Killed|Terminated) `)

// run runs a command line and returns its output, errors included.
func (s *shell) run(command string) ([]string, error) {
	const end = "-- the command has ended --"
	late := atomic.Bool{}
	timer := time.AfterFunc(patience, func() {
		late.Store(true)
		s.kill()
	})
	defer timer.Stop()
	if _, err := fmt.Fprintf(s.in, "{ %s\n} </dev/null 2>&1; printf '\\n%s\\n'\n", command, end); err != nil {
		return nil, err
	}
	var lines []string
	for {
		l, err := s.out.ReadString('\n')
		switch l = strings.TrimSuffix(l, "\n"); {
		case late.Load():
			return nil, errors.New("it does not end")
		case err != nil:
			return nil, err
		case l != end:
			if !killed.MatchString(l) {
				lines = append(lines, strings.ReplaceAll(strings.TrimRight(l, " "), s.cmd.Dir, "~"))
			}
			continue
		}
		// The line break before the end is ours.
		if lines[len(lines)-1] == "" {
			lines = lines[:len(lines)-1]
		}
		return lines, nil
	}
}
