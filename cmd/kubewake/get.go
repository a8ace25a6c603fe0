package main

import (
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubeget "k8s.io/kubectl/pkg/cmd/get"
	cmdutil "k8s.io/kubectl/pkg/cmd/util"
	"k8s.io/kubectl/pkg/util/completion"
)

func newGet(streams genericiooptions.IOStreams) *cobra.Command {
	return onFile(streams, func(c *kubeClient) *cobra.Command {
		cmd := kubeget.NewCmdGet("kubewake", cmdutil.NewFactory(c), c.streams)
		cmd.Short = "Show objects in the file; no server is asked"
		cmd.Long = "Show objects in the file; no server is asked. This is kubectl's get: types, flags, output and " +
			"exit codes are its own.\n" +
			"If several sources have all that you ask for, the one that the server confirmed last answers. If none " +
			"has, the objects\n" +
			"that the file has are shown, and standard error says so. It also says how old the objects are."
		cmd.Example = `  kubewake get pods -n web -l app=shop --db cache.db
  kubewake get deployments.apps shop -n web -o yaml
  kubewake get pod/shop-1 deploy/shop cm -n web
  kubewake get pods -A --sort-by=.metadata.name --field-selector spec.nodeName=n1 -L app
  kubewake get pods -w`
		shown := cmd.Flags().Bool("show-secrets", false, "show the data of secrets")
		cmd.ValidArgsFunction = completion.ResourceTypeAndNameCompletionFunc(cmdutil.NewFactory(c))
		c.secrets = true
		cmd.PreRun = func(cmd *cobra.Command, _ []string) {
			f := cmd.Flags()
			c.names = f.Lookup("output").Value.String() == "name" && !f.Changed("sort-by")
		}
		c.hides = func() func(*unstructured.Unstructured) {
			if *shown {
				return nil
			}
			return redact
		}
		return cmd
	})
}
