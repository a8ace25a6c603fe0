//go:build unix

package boltstore

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// waitLocked returns when this process has opened the file once more, besides the holder.
func waitLocked(t *testing.T, path string) {
	t.Helper()
	want, err := os.Stat(path)
	if err != nil {
		t.Error(err)
		return
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(time.Millisecond) { // between two looks at /proc, which tells nobody
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("needs /proc")
		}
		n := 0
		for _, fd := range fds {
			if st, err := os.Stat("/proc/self/fd/" + fd.Name()); err == nil && os.SameFile(st, want) {
				n++
			}
		}
		if n > 1 {
			return
		}
	}
	t.Error("nobody else opened " + strconv.Quote(path))
}
