package main

import (
	"math"
	"os"
	"runtime/debug"

	"github.com/kubewake/kubewake/internal/memlimit"
)

// limitMemory gives the Go runtime a soft limit of nine tenths of the memory that the
// process's cgroup may have, unless $GOMEMLIMIT sets one.
func limitMemory() {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	if most := memlimit.Cgroup(os.DirFS("/")); most > 0 {
		debug.SetMemoryLimit(most / 10 * 9)
	}
}
