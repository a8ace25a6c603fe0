package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	"k8s.io/kubectl/pkg/cmd/apiresources"
	kubedescribe "k8s.io/kubectl/pkg/cmd/describe"
	"k8s.io/kubectl/pkg/cmd/diff"
	kubeevents "k8s.io/kubectl/pkg/cmd/events"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/cmd/wait"

	_ "github.com/kubewake/kubewake/cmd/kubewake/internal/english" // before kubectl's packages
)

// fatal is how kubectl's commands end with an error. They call os.Exit; here they panic,
// and run returns the exit code.
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
			return kubedescribe.NewCmdDescribe("kubewake", cmdutil.NewFactory(c), streams)
		}),
		onFile(streams, func(c *kubeClient) *cobra.Command { return kubeevents.NewCmdEvents(c, streams) }),
		onFile(streams, func(c *kubeClient) *cobra.Command { return apiresources.NewCmdAPIResources(c, streams) }),
		onFile(streams, func(c *kubeClient) *cobra.Command { return apiresources.NewCmdAPIVersions(c, streams) }),
		onFile(streams, func(c *kubeClient) *cobra.Command {
			cmd := wait.NewCmdWait(c, streams)
			cmd.Flags().BoolVar(&c.secrets, "show-secrets", false, "wait for secrets, too; -o shows their data")
			return cmd
		}),
		onFile(streams, func(c *kubeClient) *cobra.Command {
			c.secrets = true // it masks them, without --show-secrets
			return diff.NewCmdDiff(cmdutil.NewFactory(c), streams)
		}),
		notInFiles("explain TYPE", "Print why a file cannot explain a type's fields",
			"a file has objects, and no OpenAPI schema to explain fields from; ask a server: kubectl explain"),
		notInFiles("logs POD", "Print why a file has no logs",
			"a file has objects, and no logs; they are on the node: kubectl logs, or kubewake serve --pass-through"),
	}
}

// onFile makes a command of kubectl read the file. Its help then says kubewake.
func onFile(streams genericiooptions.IOStreams, of func(*kubeClient) *cobra.Command) *cobra.Command {
	c := &kubeClient{streams: streams, warnings: rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})}
	cmd := of(c)
	saysInstead(cmd, "kubectl ", "kubewake ")
	c.db.addFlags(cmd)
	c.db.clockFlag(cmd)
	c.db.clusterFlag(cmd)
	namespaceFlag(cmd, &c.namespace)
	runs := cmd.Run
	cmd.Run = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		c.ctx = cmd.Context()
		if c.own != nil {
			if own, err := c.own(cmd, args); own {
				return err
			}
		}
		defer func() { err = errors.Join(err, c.Close()) }()
		return untilFatal(streams.ErrOut, func() { runs(cmd, args) })
	}
	if completes := cmd.ValidArgsFunction; completes != nil {
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, to string) (all []string, how cobra.ShellCompDirective) {
			c.ctx, c.streams.ErrOut = cmd.Context(), io.Discard // nothing else may be on the line
			defer func() { err := c.Close(); _ = err }()        // it was only read
			how = cobra.ShellCompDirectiveNoFileComp
			_ = untilFatal(io.Discard, func() { all, how = completes(cmd, args, to) }) // what cannot be completed is not
			return all, how
		}
	}
	return cmd
}

// untilFatal runs a command of kubectl until it ends, or calls fatal.
func untilFatal(errOut io.Writer, runs func()) (err error) {
	defer func() {
		p := recover()
		f, ok := p.(fatal)
		if p != nil && !ok {
			panic(p)
		}
		if !ok {
			return
		}
		if f.text != "" {
			fmt.Fprintln(errOut, strings.TrimSuffix(f.text, "\n"))
		}
		err = exitCode{code: f.code}
	}()
	runs()
	return nil
}

// notInFiles is a command that says why there is no such command.
func notInFiles(use, short, why string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, DisableFlagParsing: true,
		RunE: func(*cobra.Command, []string) error { return errors.New(why) },
	}
}

// saysInstead replaces what a command's help calls the program.
func saysInstead(cmd *cobra.Command, name, instead string) {
	for _, text := range []*string{&cmd.Long, &cmd.Example} {
		*text = strings.ReplaceAll(*text, name, instead)
	}
	for _, sub := range cmd.Commands() {
		saysInstead(sub, name, instead)
	}
}
