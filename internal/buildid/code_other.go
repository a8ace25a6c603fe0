//go:build !linux

package buildid

import (
	"errors"
	"os"
)

// started is the executable's file as the program found it when it started.
var started = func() os.FileInfo {
	path, err := os.Executable()
	if err != nil {
		return nil
	}
	st, err := os.Stat(path)
	if err != nil {
		return nil
	}
	return st
}()

// openCode opens the executable, unless another file has taken its place since
// the program started.
func openCode() (*os.File, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil && (started == nil || !os.SameFile(st, started) || st.Size() != started.Size() ||
		!st.ModTime().Equal(started.ModTime())) {
		err = errors.New("another file has taken its place")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
