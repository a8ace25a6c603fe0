package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// screen is a terminal, and the text that was written to it.
type screen struct {
	tty    *os.File
	shown  buffer
	close  func()
	hangUp func()
}

// newScreen returns a pseudo-terminal.
func newScreen(t *testing.T) *screen {
	t.Helper()
	t.Setenv("TERM", "xterm")
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals:", err)
	}
	conn, err := master.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var failed error
	err = conn.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			n, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	s := &screen{}
	if s.tty, err = os.OpenFile(fmt.Sprint("/dev/pts/", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		_, _ = io.Copy(&s.shown, master) // until it is closed
		close(read)
	}()
	s.close = sync.OnceFunc(func() {
		_ = s.tty.Close()
		<-read // what was written
		_ = master.Close()
	})
	s.hangUp = func() {
		_ = master.Close()
		<-read
	}
	t.Cleanup(s.close)
	return s
}

// await waits until the screen has shown a text.
func (s *screen) await(t *testing.T, text string) {
	t.Helper()
	// between two looks: the screen gives no signal
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.shown.String(),
		text); time.Sleep(time.Millisecond) { // between two looks, see above
		if time.Now().After(deadline) {
			t.Fatalf("no %q is shown:\n%q", text, s.shown.String())
		}
	}
}

// TestTerminalGone: a mirror whose terminal has gone ends in order at SIGHUP. While the
// terminal is there, it goes on.
func TestTerminalGone(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	s := newScreen(t)
	cmd, m := mirrorCommand(genericiooptions.IOStreams{Out: io.Discard, ErrOut: s.tty})
	hangups := make(chan os.Signal)
	m.hangups = hangups
	cmd.SetArgs([]string{"configmaps", "-A", "--no-socket", "--db", filepath.Join(t.TempDir(), "f.db"), "--server",
		sim.URL()})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(t.Context()) }()
	s.await(t, "live at")
	hangups <- unix.SIGHUP
	s.await(t, "there is nothing to reload")
	s.hangUp()
	hangups <- unix.SIGHUP
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestHangupOfServe: a SIGHUP to all kubewake processes of a machine, which makes a
// mirror read its config again, does not end kubewake serve. It ends in order if its
// terminal has gone.
func TestHangupOfServe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	fileWith(t, path, nil)
	s := newScreen(t)
	cmd, of := serveCommand(genericiooptions.IOStreams{Out: io.Discard, ErrOut: s.tty})
	hangups := make(chan os.Signal)
	of.hangups = hangups
	cmd.SetArgs([]string{"--listen", "none", "--db", path})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(t.Context()) }()
	s.await(t, "serving")
	hangups <- unix.SIGHUP
	s.await(t, "SIGHUP: there is nothing to reload")
	s.hangUp()
	hangups <- unix.SIGHUP
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path + ".api.sock"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
}
