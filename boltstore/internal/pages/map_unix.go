//go:build unix

package pages

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// mapped is a file in memory. A part that cannot be read is an error, as of a file.
type mapped []byte

// ReadAt implements io.ReaderAt.
func (m mapped) ReadAt(b []byte, off int64) (n int, err error) {
	if off < 0 || off > int64(len(m)) {
		return 0, io.EOF
	}
	err = faults.Catch(errUnreadable, func() error {
		n = copy(b, m[off:])
		return nil
	})
	if err == nil && n < len(b) {
		err = io.EOF
	}
	return n, err
}

var errUnreadable = errors.New("a part of the file cannot be read")

// mapFile maps a file, or returns the file itself if that is not possible. A scan reads some
// bytes of each page: a system call for each would take most of its time.
func mapFile(f *os.File, size int64) (r io.ReaderAt, unmap func()) {
	if size <= 0 || size > math.MaxInt/2 {
		return f, func() {}
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return f, func() {}
	}
	return mapped(b), func() {
		if err := unix.Munmap(b); err != nil {
			panic(fmt.Sprintf("pages: a mapping cannot be released: %v", err)) // b is what was mapped
		}
	}
}
