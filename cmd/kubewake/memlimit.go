package main

import (
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"
)

// limitMemory gives the Go runtime a soft limit of nine tenths of the memory that the
// process's cgroup may have, unless $GOMEMLIMIT sets one.
func limitMemory() {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 {
		return
	}
	if most := cgroupMemory(os.DirFS("/")); most > 0 {
		debug.SetMemoryLimit(most / 10 * 9)
	}
}

// cgroupMemory is the least limit of the process's cgroup and those above it, 0 if there is
// none.
func cgroupMemory(root fs.FS) (least int64) {
	const mount = "sys/fs/cgroup"
	own, _ := fs.ReadFile(root, "proc/self/cgroup") // without it the mount's own limit counts
	files := []string{path.Join(mount, "memory.max"), path.Join(mount, "memory/memory.limit_in_bytes")}
	for line := range strings.Lines(string(own)) {
		_, controllers, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, dir, _ := strings.Cut(controllers, ":")
		file, at := "memory.max", mount
		if controllers != "" {
			file, at = "memory.limit_in_bytes", path.Join(mount, "memory")
		}
		for ; (controllers == "" || controllers == "memory") && len(dir) > 1; dir = path.Dir(dir) {
			files = append(files, path.Join(at, dir, file))
		}
	}
	for _, file := range files {
		text, err := fs.ReadFile(root, file)
		if err != nil {
			continue
		}
		// Version 1 says that there is no limit by a number near the largest.
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < 1<<60 && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
