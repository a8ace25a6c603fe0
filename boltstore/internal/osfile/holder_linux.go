package osfile

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

// Holder returns " (pid 12)" for the processes that have the file locked, or "".
// Linux does not name processes of another container, nor on a file system whose
// device numbers differ from the kernel's own (btrfs).
func Holder(path string) string {
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

// pids finds the processes that hold a lock on file, in lines such as "1: FLOCK
// ADVISORY WRITE 8213 fd:01:537 0 EOF". A process that waits for the lock has an arrow
// after the number.
func pids(locks io.Reader, file string) string {
	var found []string
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file || f[4] == "0" || f[4] == "-1" ||
			slices.Contains(found, f[4]) {
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
