package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kubewake/kubewake/boltstore"
)

// check verifies a file in a child process. Following a damaged page can fault or
// overflow the stack in ways that a Go program does not survive.
type check struct {
	streams genericiooptions.IOStreams
	db      dbFile
	output  string
	timeout time.Duration
}

func newCheck(streams genericiooptions.IOStreams) *cobra.Command {
	c := &check{streams: streams}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Verify every page, record, index entry, digest and journal block of the file",
		Long: "Verify every page, record, index entry, digest and journal block of the file. If a program has " +
			"it open,\n" +
			"a snapshot is verified. Other programs can open the file during the check.\n\nExit codes: 0 sound, 1 " +
			"damaged, 2 not checked.",
		Example: `  kubewake check --db cache.db
  kubewake check --db cache.db -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := cobra.NoArgs(cmd, args); err != nil {
				return exitCode{2, err}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return c.run(cmd.Context()) },
	}
	c.db.addFlags(cmd)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return exitCode{2, err} })
	cmd.Flags().StringVarP(&c.output, "output", "o", "", "json; text by default")
	cmd.Flags().DurationVar(&c.timeout, "timeout", 10*time.Minute, "give up after this time")
	cmd.AddCommand(newCheckChild(streams))
	return cmd
}

// verdict is the child's answer on its standard output.
type verdict struct {
	Report boltstore.Report
	Error  string // why the child could not check
	Locked bool
	Taken  bool // another program wrote to the file during the check
}

func (c *check) run(ctx context.Context) error {
	if err := oneOf(c.output, "", "json"); err != nil {
		return exitCode{2, err}
	}
	if c.timeout <= 0 {
		return exitCode{2, errors.New("--timeout must be positive")}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, fmt.Errorf("it took longer than %s (--timeout)", c.timeout))
	defer cancel()
	v, err := c.child(ctx, c.db)
	for range 2 { // the other program may have ended
		if err == nil && v.Taken {
			v, err = c.child(ctx, c.db)
		}
	}
	if err == nil && v.Locked {
		v, err = c.snapshot(ctx, v.Error)
	}
	if err == nil && v.Error != "" {
		err = errors.New(v.Error)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return exitCode{2, fmt.Errorf("%s could not be checked: %w", c.db.path, err)}
	}
	if c.output == "json" {
		err = printJSON(c.streams.Out, v.Report)
	} else {
		var out bytes.Buffer
		printReport(&out, v.Report)
		_, err = out.WriteTo(c.streams.Out)
	}
	switch {
	case err != nil:
		return exitCode{2, err}
	case !v.Report.Sound():
		return exitCode{1, nil}
	}
	return nil
}

// snapshot checks a copy of a file that is locked.
func (c *check) snapshot(ctx context.Context, locked string) (v verdict, err error) {
	r, err := c.db.owner()
	if err != nil {
		return v, fmt.Errorf("%s; %w", locked, err)
	}
	defer r.Close()
	dir, release, err := tempDir("kubewake-copy-")
	if err != nil {
		return v, err
	}
	defer release()
	defer os.RemoveAll(dir)
	of := dbFile{path: filepath.Join(dir, "snapshot.db"), keyset: c.db.keyset}
	if _, err := snapshot(ctx, r, of.path, false); err != nil {
		return v, err
	}
	fmt.Fprintf(c.streams.ErrOut, "%s is in use; this is about a snapshot of it\n", c.db.path)
	v, err = c.child(ctx, of)
	v.Report.Path = c.db.path
	return v, err
}

// child checks a file in a child process. Its crash is damage.
func (c *check) child(ctx context.Context, db dbFile) (v verdict, err error) {
	exe, err := os.Executable()
	if err != nil {
		return v, err
	}
	cmd := exec.CommandContext(ctx, exe, "check", "child", "--db", db.path, "--keyset", db.keyset,
		fmt.Sprintf("--allow-unsafe-path=%t", db.unsafe))
	before, _ := os.Stat(db.path)
	var out bytes.Buffer
	errs := &head{max: 4 << 10}
	cmd.Stdout, cmd.Stderr = &out, errs
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return v, ctx.Err()
	case err == nil:
		return v, json.Unmarshal(out.Bytes(), &v)
	case !errors.As(err, &exit):
		return v, err // the child did not start
	case exit.ExitCode() == 1:
		return v, errors.New(strings.TrimPrefix(strings.TrimSpace(errs.String()), "Error: "))
	case exit.String() == "signal: killed":
		return v, errors.New("the process that checks it was killed from outside; is there enough memory?")
	}
	// If another program writes during the check, the file may look damaged.
	if now, err := os.Stat(db.path); before == nil || err != nil || !os.SameFile(before, now) ||
		!now.ModTime().Equal(before.ModTime()) {
		return verdict{Error: oneLine(boltstore.ErrTaken), Taken: true}, nil
	}
	first, _, _ := strings.Cut(strings.TrimSpace(errs.String()), "\n")
	v.Report.Path = db.path
	if st, err := os.Stat(db.path); err == nil {
		v.Report.Bytes = st.Size()
	}
	v.Report.Problems = []string{fmt.Sprintf("reading it crashed the process that checks it: %s: %s", exit, first)}
	return v, nil
}

// head keeps the first max bytes written to it.
type head struct {
	bytes.Buffer
	max int
}

func (h *head) Write(p []byte) (int, error) {
	h.Buffer.Write(p[:min(len(p), max(0, h.max-h.Len()))])
	return len(p), nil
}

// newCheckChild is the command that the child runs. Its exit code is 0 if it survives
// to report.
func newCheckChild(streams genericiooptions.IOStreams) *cobra.Command {
	var db dbFile
	cmd := &cobra.Command{
		Use:    "child",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			debug.SetMaxStack(64 << 20) // a cycle of pages overflows it soon
			return json.NewEncoder(streams.Out).Encode(verify(db))
		},
	}
	db.addFlags(cmd)
	return cmd
}

func verify(f dbFile) (v verdict) {
	v.Report.Path = f.path
	db, err := f.open()
	if err == nil {
		v.Report, err = checkUntilTaken(db)
	} else if errors.Is(err, boltstore.ErrDamaged) {
		if st, err := os.Stat(f.path); err == nil {
			v.Report.Bytes = st.Size()
		}
		v.Report.Problems = append(v.Report.Problems, oneLine(err))
		return v
	}
	if err != nil {
		v.Error, v.Locked, v.Taken = oneLine(err), errors.Is(err, boltstore.ErrLocked),
			errors.Is(err, boltstore.ErrTaken)
	}
	return v
}

// checkUntilTaken ends early once another program writes to the file, since the
// findings then mean nothing. The check itself ends with the process.
func checkUntilTaken(db *boltstore.DB) (boltstore.Report, error) {
	type result struct {
		r   boltstore.Report
		err error
	}
	done := make(chan result, 1)
	go func() {
		r, err := db.Check()
		done <- result{r, errors.Join(err, db.Close())}
	}()
	for {
		select {
		case res := <-done:
			return res.r, res.err
		case <-time.After(50 * time.Millisecond):
			if err := db.Err(); errors.Is(err, boltstore.ErrTaken) {
				return boltstore.Report{Path: db.Path()}, err
			}
		}
	}
}

func printReport(w io.Writer, r boltstore.Report) {
	for _, p := range r.Problems {
		fmt.Fprintf(w, "file: %s\n", p)
	}
	for _, s := range r.Sources {
		fmt.Fprintf(w, "%s: %d objects, %d indices, %d journal entries", s.Source, s.Objects, s.Indices, s.Entries)
		if len(s.Problems) == 0 {
			fmt.Fprintln(w, ": sound")
			continue
		}
		fmt.Fprintln(w, ": DAMAGED")
		for _, p := range s.Problems {
			fmt.Fprintf(w, "  %s\n", p)
		}
	}
	if r.Sound() {
		fmt.Fprintf(w, "%s is sound (%d bytes)\n", r.Path, r.Bytes)
	} else {
		fmt.Fprintf(w, "%s is damaged; the next program that opens it for writing rebuilds it from the server\n",
			r.Path)
	}
}
