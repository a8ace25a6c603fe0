//go:build !windows

package main

import "os"

// obeys is true of a terminal.
func obeys(*os.File) bool { return true }
