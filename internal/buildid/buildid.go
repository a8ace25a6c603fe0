// Package buildid names the executable's build.
package buildid

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
)

// Get names this build of this executable: two builds from different code have
// different names. It is the id that the Go linker puts at the front of the
// file (cmd/go's buildid does the same), else the file's size and time.
var Get = sync.OnceValue(func() string {
	path, err := os.Executable()
	if err != nil {
		return "unknown"
	}
	f, err := os.Open(path)
	if err != nil {
		return "unknown"
	}
	defer f.Close()
	head := make([]byte, 64<<10)
	n, _ := io.ReadFull(f, head)
	if id := find(head[:n]); id != nil {
		sum := sha256.Sum256(id)
		return hex.EncodeToString(sum[:8])
	}
	if st, err := f.Stat(); err == nil {
		return fmt.Sprintf("%d-%d", st.Size(), st.ModTime().UnixNano())
	}
	return "unknown"
})

// find returns the id of an ELF note, or of the text that other formats carry.
func find(head []byte) []byte {
	elf := []byte("Go\x00\x00")
	if i := bytes.Index(head, elf); i >= 12 {
		size := int(head[i-8]) | int(head[i-7])<<8
		if i+4+size <= len(head) && size > 0 {
			return head[i+4 : i+4+size]
		}
	}
	const prefix, suffix = "\xff Go build ID: \"", "\"\n \xff"
	if i := bytes.Index(head, []byte(prefix)); i >= 0 {
		if j := bytes.Index(head[i:], []byte(suffix)); j > 0 {
			return head[i+len(prefix) : i+j]
		}
	}
	return nil
}
