//go:build !unix

package pages

import (
	"io"
	"os"
)

// mapFile returns the file itself: it is read.
func mapFile(f *os.File, _ int64) (r io.ReaderAt, unmap func()) { return f, func() {} }
