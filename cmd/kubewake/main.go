// Command kubewake keeps Kubernetes objects in a file and reads them from it.
//
// A command has the file of its name. Longer names are parts of it: mirrorreload is of
// mirror. Commands share these files:
//
//   - file: opening the file. answer: which sources answer. types: which type a name means.
//   - client, wire: the server. access: the addresses of the API, for serve and mirror.
//   - kubectl, kubeclient, inprocess: kubectl's own commands, over the API of the file. parts
//     serves its get, dryrun its diff, mask both, complete its completion.
//   - progress, terminal: output.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the program at once, which does the file no harm
	// This silences client-go: the command reports errors itself.
	klog.SetLoggerWithOptions(logr.Discard(), klog.WriteKlogBuffer(saysWhyItEnds))
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	args := os.Args[1:]
	if calledAs(completer) {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	os.Exit(run(ctx, streams, args))
}

// saysWhyItEnds prints a line of klog with which kubectl's code ends the process, as it does
// where objects have no order by --sort-by.
func saysWhyItEnds(line []byte) {
	if _, text, ok := bytes.Cut(line, []byte("] ")); ok && bytes.HasPrefix(line, []byte("F")) {
		fmt.Fprintln(os.Stderr, "Error:", oneLine(errors.New(string(text))))
	}
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	cmd := newRoot(streams)
	help := &noting{w: streams.Out}
	cmd.SetOut(help)
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		err = help.err
	}
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

// noting keeps the first error of its writes. Cobra does not return those of help.
type noting struct {
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (n *noting) Write(b []byte) (int, error) {
	written, err := n.w.Write(b)
	n.err = cmp.Or(n.err, err)
	return written, err
}

// exitCode is an error with an exit code. If err is nil, the command has already said
// everything.
type exitCode struct {
	code int
	err  error
}

func (e exitCode) Error() string { return fmt.Sprint("exit code ", e.code) }

// oneLine returns the text of an error in one line, without control characters. Joined errors
// are separated by "; ".
func oneLine(err error) string {
	lines := strings.FieldsFunc(strings.TrimPrefix(err.Error(), "boltstore: "), func(r rune) bool { return r == '\n' })
	for i, l := range lines {
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return escaped(strings.Join(lines, "; "))
}

// logger passes the library's messages to say, as text.
func logger(say func(line string)) *klog.Logger {
	noLevel := ""
	l := funcr.New(func(_, args string) { say(args) }, funcr.Options{LogInfoLevel: &noLevel})
	return &l
}

// loggerTo writes the library's messages to w, one a line.
func loggerTo(w io.Writer) *klog.Logger {
	return logger(func(line string) { fmt.Fprintln(w, line) })
}

// Names by which kubectl finds the program as its command wake, and the completion of
// that.
const (
	plugin    = "kubectl-wake"
	completer = "kubectl_complete-wake"
)

// calledAs says whether the program was started by a name.
func calledAs(name string) bool {
	return strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == name
}

// newRoot has the commands. A new one takes a file with its newX, an Example
// (TestManPages), a line below, a line in README or docs, and a script in
// tests/cli/testdata that runs it (TestCommandsAreShown). If it takes types it takes rows
// in testdata/decisions.txt, and if these can be completed a ValidArgsFunction.
// tests/readme runs the lines of docs/commands.md.
func newRoot(streams genericiooptions.IOStreams) *cobra.Command {
	root := &cobra.Command{
		Use:   "kubewake",
		Short: "An informer cache for Kubernetes, kept in one file, that wakes up where it left off",
		Example: `  kubewake mirror pods configmaps -A --db cache.db    # until SIGTERM
  kubewake get pods -n web --db cache.db              # no server needed
  kubewake serve --db cache.db                        # for kubectl and any other client`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(streams.Out)
	root.SetErr(streams.ErrOut)
	root.AddCommand(newMirror(streams), newGet(streams), newServe(streams), newStatus(streams), newHistory(streams),
		newIndex(streams), newSnapshot(streams), newExport(streams), newCheck(streams), newCompare(streams),
		newCompact(streams), newKeys(streams), newVersion(streams), newDocs())
	root.AddCommand(kubectlCommands(streams)...)
	examples(root)
	if calledAs(plugin) {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl wake"}
		saysInstead(root, "kubewake ", "kubectl wake ")
	}
	return root
}

func newVersion(streams genericiooptions.IOStreams) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: "  kubewake version",
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(streams.Out, "kubewake", version())
			return err
		},
	}
}

// version returns the module's version as the Go command recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "devel"
}
