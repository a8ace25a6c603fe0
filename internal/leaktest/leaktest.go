// Package leaktest finds goroutines that this module or its dependencies have left
// behind, as a program's own leak test would.
package leaktest

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// modules are the modules whose goroutines count.
var modules = []string{"kubewake/", "go.etcd.io/bbolt", "klauspost/compress", "golang-lru", "k8s.io/client-go",
	"k8s.io/apimachinery"}

// Ours returns the stacks of the goroutines that count. It leaves out tests, the
// simulated server, and goroutines in before, which is an earlier result.
func Ours(before []string) (all []string) {
	buf := make([]byte, 4<<20)
	for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
		id, _, _ := strings.Cut(stack, " [")
		counts := slices.ContainsFunc(modules, func(m string) bool { return strings.Contains(stack, m) })
		known := slices.ContainsFunc(before, func(b string) bool { return strings.HasPrefix(b, id+" [") })
		if counts && !known && !strings.Contains(stack, "testing.tRunner(") &&
			!strings.Contains(stack, "internal/kubesim.") {
			all = append(all, stack)
		}
	}
	return all
}

// None fails the test if such goroutines are left after a minute.
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
