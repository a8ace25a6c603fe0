// Package leaktest finds goroutines that this module, or what it uses, has left
// behind, as a program's own leak test would.
package leaktest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// modules are those whose goroutines count.
var modules = []string{"kubewake/", "go.etcd.io/bbolt", "klauspost/compress", "golang-lru", "k8s.io/client-go", "k8s.io/apimachinery"}

// Ours are the stacks of the goroutines that count, but for those of tests and of
// the simulated server, and for those that are in before, an earlier answer.
func Ours(before []string) (all []string) {
	buf := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		id, _, _ := strings.Cut(stack, " [")
		counts := slices.ContainsFunc(modules, func(m string) bool { return strings.Contains(stack, m) })
		known := slices.ContainsFunc(before, func(b string) bool { return strings.HasPrefix(b, id+" [") })
		if counts && !known && !strings.Contains(stack, "testing.tRunner(") && !strings.Contains(stack, "internal/kubesim.") {
			all = append(all, stack)
		}
	}
	return all
}

// None waits, for a minute, until there are none.
func None(t testing.TB, when string, before []string) {
	t.Helper()
	var left []string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if left = Ours(before); len(left) == 0 {
			return
		}
	}
	t.Fatalf("%s there are %d goroutines:\n%s", when, len(left), strings.Join(left, "\n\n"))
}
