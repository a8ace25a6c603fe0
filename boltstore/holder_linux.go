package boltstore

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// holder names the processes that have a file locked, " (pid 12)", as far as
// the system tells: not those of another container, and not on file systems
// whose device numbers differ from the kernel's own (btrfs).
func holder(path string) string {
	st, err := os.Stat(path)
	if err != nil {
		return ""
	}
	s, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	f, err := os.Open("/proc/locks")
	if err != nil {
		return ""
	}
	defer f.Close()
	return pids(f, fmt.Sprintf("%02x:%02x:%d", unix.Major(uint64(s.Dev)), unix.Minor(uint64(s.Dev)), s.Ino))
}

// pids are those of the processes that hold a lock on a file, by lines such as
// "1: FLOCK  ADVISORY  WRITE 8213 fd:01:537 0 EOF". Those that wait for one
// have an arrow behind the number.
func pids(locks io.Reader, file string) string {
	var found []string
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file || f[4] == "0" || f[4] == "-1" || slices.Contains(found, f[4]) {
			continue
		}
		if found = append(found, f[4]); len(found) == 3 {
			break
		}
	}
	if len(found) == 0 {
		return ""
	}
	return " (pid " + strings.Join(found, ", ") + ")"
}
