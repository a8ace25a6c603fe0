package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// isTerminal says whether w is a terminal that has not been hung up.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminal says whether w is a terminal that obeys escape sequences.
func terminal(w io.Writer) bool {
	return isTerminal(w) && os.Getenv("TERM") != "dumb" && obeys(w.(*os.File))
}

// color says whether values are shown in colour.
type color bool

// Escape sequences of a terminal.
const (
	red     = "\x1b[31m"
	green   = "\x1b[32m"
	noColor = "\x1b[0m"
)

// in returns text in a colour.
func (c color) in(colour, text string) string {
	if !c {
		return text
	}
	return colour + text + noColor
}

// colorFlag adds --color.
func colorFlag(cmd *cobra.Command, when *string) {
	cmd.Flags().StringVar(when, "color", "auto",
		"`when` to show colours: auto, always or never; auto: on a terminal, unless $NO_COLOR is set")
	// fails only for an unknown flag
	_ = cmd.RegisterFlagCompletionFunc("color",
		cobra.FixedCompletions([]cobra.Completion{"auto", "always", "never"}, cobra.ShellCompDirectiveNoFileComp))
}

// colorOn decides by --color whether colours are shown on out.
func colorOn(out io.Writer, when string) (color, error) {
	switch when {
	case "always":
		return true, nil
	case "never":
		return false, nil
	case "auto":
		return color(os.Getenv("NO_COLOR") == "" && terminal(out)), nil // https://no-color.org
	}
	return false, fmt.Errorf("%q is none of auto, always and never (--color)", when)
}
