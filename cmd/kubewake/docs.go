package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newDocs writes the manual. It is for packagers.
func newDocs() *cobra.Command {
	cmd := &cobra.Command{
		Use: "docs", Short: "Write the manual", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "man DIR",
		Short:   "Write a man page of each command to a folder; $SOURCE_DATE_EPOCH, if set, dates them",
		Example: "  kubewake docs man /usr/local/share/man/man1",
		Args:    cobra.ExactArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return manPages(cmd.Root(), args[0]) },
	})
	return cmd
}

// manPages writes a page of each command that help shows.
func manPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	root.DisableAutoGenTag = true
	return doc.GenManTree(root, &doc.GenManHeader{Source: "kubewake " + version(), Manual: "kubewake"}, dir)
}

// examples gives cobra's own commands examples, as all others have.
func examples(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for path, example := range map[string]string{
		"help":                  "  kubewake help history",
		"completion":            "  source <(kubewake completion bash)",
		"completion bash":       "  source <(kubewake completion bash)",
		"completion zsh":        "  source <(kubewake completion zsh)",
		"completion fish":       "  kubewake completion fish | source",
		"completion powershell": "  kubewake completion powershell | Out-String | Invoke-Expression",
	} {
		if cmd, _, err := root.Find(strings.Fields(path)); err == nil {
			cmd.Example = example
		}
	}
}
