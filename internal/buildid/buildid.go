// Package buildid names the build of the running program.
package buildid

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"sync"
)

// Get names this build: two builds from different code have different names, and each run
// of one build has the same name. The name is made from the id that cmd/go puts into its
// builds. If a build leaves that out, the name is a hash of the whole executable. If the
// executable cannot be read, the name differs in each process.
//
// The name does not cover code that a program loads later, such as plugins.
var Get = sync.OnceValue(func() string {
	f, err := openCode()
	if err != nil {
		return unknown()
	}
	defer f.Close()
	return nameOf(f)
})

// nameOf is the name of the build that f holds.
func nameOf(f *os.File) string {
	h := sha256.New()
	if id := find(f); id != "" {
		h.Write([]byte(id))
	} else if n, err := io.Copy(h, f); err != nil || n == 0 {
		return unknown()
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// unknown never equals an earlier name. So nothing old counts as made by this build.
func unknown() string { return "unknown " + rand.Text() }
