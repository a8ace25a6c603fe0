package main

import (
	"io"
	"os"

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
