package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/apiresources"
	kubedescribe "k8s.io/kubectl/pkg/cmd/describe"
	"k8s.io/kubectl/pkg/cmd/diff"
	kubeevents "k8s.io/kubectl/pkg/cmd/events"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/cmd/wait"

	"github.com/kubewake/kubewake/boltstore"
	_ "github.com/kubewake/kubewake/cmd/kubewake/internal/english" // before kubectl's packages
)

// fatal is the panic by which kubectl's commands end with an error. Instead of calling
// os.Exit they panic, and run returns the exit code.
type fatal struct {
	text string
	code int
}

func init() {
	cmdutil.BehaviorOnFatal(func(text string, code int) { panic(fatal{text, code}) })
}

// kubectlCommands are kubectl's own, on the file.
func kubectlCommands(streams genericiooptions.IOStreams) []*cobra.Command {
	return []*cobra.Command{
		onFile(streams, func(c *kubeClient) *cobra.Command {
			c.secrets = true // it shows their sizes
			cmd := kubedescribe.NewCmdDescribe("kubewake", cmdutil.NewFactory(c), c.streams)
			describes := cmd.Run
			cmd.Run = func(cmd *cobra.Command, args []string) {
				cmdutil.CheckErr(c.hideEvents(cmd))
				describes(cmd, args)
			}
			return cmd
		}),
		onFile(streams, func(c *kubeClient) *cobra.Command { return kubeevents.NewCmdEvents(c, c.streams) }),
		onFile(streams, func(c *kubeClient) *cobra.Command { return apiresources.NewCmdAPIResources(c, c.streams) }),
		onFile(streams, func(c *kubeClient) *cobra.Command { return apiresources.NewCmdAPIVersions(c, c.streams) }),
		onFile(streams, func(c *kubeClient) *cobra.Command {
			cmd := wait.NewCmdWait(c, c.streams)
			cmd.Flags().BoolVar(&c.secrets, "show-secrets", false, "wait for secrets, too; -o shows their data")
			return cmd
		}),
		onFile(streams, func(c *kubeClient) *cobra.Command {
			c.secrets = true // it masks them, without --show-secrets
			cmd := diff.NewCmdDiff(cmdutil.NewFactory(c), c.streams)
			c.hides = func() func(*unstructured.Unstructured) {
				if shown, err := cmd.Flags().GetBool("show-secrets"); err == nil && shown {
					return nil
				}
				return maskApplied
			}
			return cmd
		}),
		notInFiles("explain TYPE", "Print why a file explains no type",
			"a file has objects, and no schemas; the server has them: kubectl explain, also by kubewake serve "+
				"--pass-through"),
		notInFiles("logs POD", "Print why a file has no logs",
			"a file has objects, and no logs; they are on the node: kubectl logs, or kubewake serve --pass-through"),
	}
}

// here finds the commands in kubectl's help that kubewake also has.
var here = regexp.MustCompile(`\bkubectl (get|describe|events|api-resources|api-versions|wait|diff|logs)\b`)

// onFile makes a command of kubectl read the file. Its help then says kubewake.
func onFile(streams genericiooptions.IOStreams, of func(*kubeClient) *cobra.Command) *cobra.Command {
	out := &taken{Writer: streams.Out, failed: func(error) {}}
	if !isTerminal(streams.Out) { // programs that kubectl runs look for one
		streams.Out = out
	}
	c := &kubeClient{streams: streams,
		warnings: rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})}
	cmd := of(c)
	for _, text := range []*string{&cmd.Long, &cmd.Example} {
		*text = here.ReplaceAllString(*text, "kubewake $1")
	}
	c.db.addFlags(cmd)
	c.db.clockFlag(cmd)
	c.db.clusterFlag(cmd)
	namespaceFlag(cmd, &c.db, &c.namespace)
	runs := cmd.Run
	cmd.Run = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		ctx, end := context.WithCancelCause(cmd.Context())
		defer end(nil)
		c.ctx, out.failed = ctx, end
		defer func() { err = errors.Join(err, c.Close()) }()
		var said bytes.Buffer
		err = untilFatal(&said, func() { runs(cmd, args) })
		if out.err != nil || cmd.Context().Err() != nil { // kubectl then only says that its requests have ended
			return exitCode{codeOf(err), out.err}
		}
		_, _ = said.WriteTo(streams.ErrOut) // there is nowhere else to say it
		return err
	}
	wrong := cmd.FlagErrorFunc()
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) (out error) {
		if ended := untilFatal(streams.ErrOut, func() { out = wrong(cmd, err) }); ended != nil {
			return ended
		}
		return out
	})
	if completes := cmd.ValidArgsFunction; completes != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, to string) ([]string,
			cobra.ShellCompDirective) {
			return c.complete(cmd, args, to, completes)
		}
	}
	return cmd
}

// taken remembers the first error of writing, and tells failed: kubectl's printers say nothing
// of a full disk, and a watch would go on.
type taken struct {
	io.Writer
	err    error
	failed func(error)
}

// Write implements io.Writer.
func (t *taken) Write(b []byte) (int, error) {
	n, err := t.Writer.Write(b)
	if err != nil && t.err == nil {
		t.err = err
		t.failed(err)
	}
	return n, err
}

// untilFatal runs a command of kubectl until it ends, or calls fatal. It may also panic: a
// program's transform may have taken fields from objects that every server sets.
func untilFatal(errOut io.Writer, runs func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case fatal:
			if p.text != "" {
				fmt.Fprintln(errOut, plainText(p.text))
			}
			err = exitCode{code: p.code}
		default:
			err = fmt.Errorf("kubectl's code cannot do this with what the file has: %v", p)
		}
	}()
	runs()
	return nil
}

// codeOf is the exit code of a command that failed, with err unless kubectl's code did not notice.
func codeOf(err error) int {
	if ended := (exitCode{}); errors.As(err, &ended) {
		return ended.code
	}
	return 1
}

// plainText is the text of kubectl's error. One of the file has no package's name, as in
// oneLine, and is there once: kubectl repeats it for each type.
func plainText(text string) string {
	var lines []string
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if of, ok := strings.CutPrefix(strings.TrimPrefix(line, "error: "), "boltstore: "); ok {
			if line = "error: " + of; slices.Contains(lines, line) {
				continue
			}
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

// hideEvents makes describe leave out events if the file has none. kubectl would call the
// object not found, or say that there were no events.
func (c *kubeClient) hideEvents(cmd *cobra.Command) error {
	if cmd.Flags().Changed("show-events") {
		return nil
	}
	if _, err := c.ToRESTConfig(); err != nil {
		return err
	}
	q := ask(namespaceOf(c.namespace), cmdutil.GetFlagBool(cmd, "all-namespaces"), nil)
	if slices.ContainsFunc(c.sources, func(st boltstore.State) bool {
		return st.Synced && groupOf(st) == schema.GroupResource{Resource: "events"} && covers(st.Source, q)
	}) {
		return nil
	}
	fmt.Fprintln(c.streams.ErrOut, "events are not in the file, so none are shown")
	return cmd.Flags().Set("show-events", "false")
}

// notInFiles is a command that says why there is no such command.
func notInFiles(use, short, why string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Long: short + ": " + why + ".", DisableFlagParsing: true,
		Example: "  kubewake " + strings.ToLower(use),
		RunE:    func(*cobra.Command, []string) error { return errors.New(why) },
	}
}

// saysInstead replaces the program's name in a command's help.
func saysInstead(cmd *cobra.Command, name, instead string) {
	for _, text := range []*string{&cmd.Long, &cmd.Example} {
		*text = strings.ReplaceAll(*text, name, instead)
	}
	for _, sub := range cmd.Commands() {
		saysInstead(sub, name, instead)
	}
}
