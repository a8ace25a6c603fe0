// Package memlimit finds out how much memory a process may have.
package memlimit

import (
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// noLimit is above all real limits. Version 1 of control groups says that there is no limit
// by a number near the largest.
const noLimit = 1 << 60

// Cgroup is the least limit of the process's control group and those above it, 0 if there
// is none. root is that of the file system.
func Cgroup(root fs.FS) (least int64) {
	const mount = "sys/fs/cgroup"
	own, _ := fs.ReadFile(root, "proc/self/cgroup")
	// In a container a group's path may be that of the host, and only the mount's own limit
	// is there.
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
		n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
		if err == nil && n > 0 && n < noLimit && (least == 0 || n < least) {
			least = n
		}
	}
	return least
}
