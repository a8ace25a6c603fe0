// Command kubewake keeps Kubernetes objects in a file and shows what is in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	os.Exit(run(ctx, streams, os.Args[1:]))
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	cmd := newRoot(streams)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	var code exitCode
	if errors.As(err, &code) {
		if code.err != nil {
			fmt.Fprintln(streams.ErrOut, "Error:", oneLine(code.err))
		}
		return code.code
	}
	fmt.Fprintln(streams.ErrOut, "Error:", oneLine(err))
	return 1
}

// exitCode is an error with an exit code of its own; without an error there is
// nothing more to say.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string { return fmt.Sprint("exit code ", e.code) }

func oneLine(err error) string {
	return strings.Join(strings.Fields(strings.TrimPrefix(err.Error(), "boltstore: ")), " ")
}

func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:           "kubewake",
		Short:         "An informer cache for Kubernetes, kept in one file, that wakes up where it left off",
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddCommand(newMirror(streams), newGet(streams), newStatus(streams), newHistory(streams), newSnapshot(streams), newCheck(streams), newCompact(streams), newKeys(streams), newDemo(streams), newVersion(streams))
	return root
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, "kubewake", version())
			return err
		},
	}
}

// version is the module's, as the Go command recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
