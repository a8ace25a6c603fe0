package cli

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// launched is a kubewake that runs beside a script.
type launched struct {
	ts    *testscript.TestScript
	cmd   *exec.Cmd
	log   *buffer
	ended chan error
}

func launch(ts *testscript.TestScript, args ...string) *launched {
	l := &launched{ts, exec.Command(kubewake, args...), &buffer{}, make(chan error, 1)}
	l.cmd.Dir = ts.Getenv("WORK")
	l.cmd.Env = append(os.Environ(), "KUBECONFIG="+ts.Getenv("KUBECONFIG"), "HOME="+ts.Getenv("HOME"),
		"KUBEWAKE_DB="+ts.Getenv("KUBEWAKE_DB"))
	l.cmd.Stderr = l.log
	must(ts, l.cmd.Start())
	go func() { l.ended <- l.cmd.Wait() }()
	return l
}

// until waits until its log says what is expected.
func (l *launched) until(what string, says func(log string) bool) {
	deadline := time.After(time.Minute)
	for tick := time.NewTicker(10 * time.Millisecond); !says(l.log.String()); {
		select {
		case <-tick.C:
		case err := <-l.ended:
			l.ts.Fatalf("it ended: %v\n%s", err, l.log.String())
		case <-deadline:
			_ = l.cmd.Process.Kill() // the test fails
			l.ts.Fatalf("not %s:\n%s", what, l.log.String())
		}
	}
}

// end interrupts it.
func (l *launched) end() {
	must(l.ts, l.cmd.Process.Signal(os.Interrupt))
	if err := <-l.ended; err != nil {
		l.ts.Fatalf("it did not end in order: %v\n%s", err, l.log.String())
	}
}

// said runs kubewake until its log has a line for each pattern, and a second longer: some
// lines are not to come. It then ends kubewake. The log is in said.log.
func said(ts *testscript.TestScript, neg bool, args []string) {
	at := slices.Index(args, "--")
	if neg || at < 1 {
		ts.Fatalf("usage: said PATTERN... -- ARGS...")
	}
	l := launch(ts, args[at+1:]...)
	for _, pattern := range args[:at] {
		l.until(pattern, regexp.MustCompile("(?m)"+pattern).MatchString)
	}
	<-time.After(time.Second)
	l.end()
	must(ts, os.WriteFile(ts.MkAbs("said.log"), []byte(l.log.String()), 0o600))
}
