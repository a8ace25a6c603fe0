package main

import (
	"os"

	"golang.org/x/sys/windows"
)

// obeys asks a console to obey escape sequences, as older ones do only then.
func obeys(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
