//go:build unix

package boltstore

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/kubewake/kubewake/internal/waittest"
)

// waitLocked returns when a goroutine of this process waits for the lock of a file.
func waitLocked(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 1<<20)
	waittest.Eventually(t, "somebody waits for the lock", func() bool {
		return bytes.Contains(stacks[:runtime.Stack(stacks, true)], []byte("osfile.Files.WaitLock("))
	})
}
