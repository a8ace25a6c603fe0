package buildid

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"syscall"
)

const self = "/proc/self/exe"

// openCode opens the file that this code runs from. That is the executable as it was
// started, even if its path is gone or now leads to another file. It is another file only
// for a shared library, or for a program that was given to a loader.
func openCode() (*os.File, error) {
	exe, err := os.Readlink(self)
	if err != nil {
		return nil, err
	}
	m, err := mappingOf(reflect.ValueOf(nameOf).Pointer())
	switch {
	case err != nil:
		return nil, err
	case m.path == exe || !strings.HasPrefix(m.path, "/") || strings.HasPrefix(m.path, "/memfd:"):
		return os.Open(self) // an unpacked program has no file
	}
	f, err := os.Open(m.path)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err == nil {
		sys, ok := st.Sys().(*syscall.Stat_t)
		if !ok || sys.Ino != m.inode {
			err = errors.New("another file has taken its place")
		}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// mapping is a line of /proc/self/maps.
type mapping struct {
	path  string
	inode uint64
}

// mappingOf finds the mapping that an address is in.
func mappingOf(addr uintptr) (mapping, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return mapping{}, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if m, ok := parseMapping(lines.Text(), uint64(addr)); ok {
			return m, nil
		}
	}
	if err := lines.Err(); err != nil {
		return mapping{}, err
	}
	return mapping{}, fmt.Errorf("nothing is mapped at %#x", addr)
}

// parseMapping reads a line such as
// "00400000-00a2c000 r-xp 00000000 fd:01 1835  /usr/bin/x", if addr is in it.
func parseMapping(line string, addr uint64) (m mapping, ok bool) {
	var fields [5]string
	rest := line
	for i := range fields {
		fields[i], rest, _ = strings.Cut(strings.TrimLeft(rest, " "), " ")
	}
	from, to, _ := strings.Cut(fields[0], "-")
	low, err := strconv.ParseUint(from, 16, 64)
	high, err2 := strconv.ParseUint(to, 16, 64)
	if err != nil || err2 != nil || addr < low || addr >= high {
		return m, false
	}
	m.inode, _ = strconv.ParseUint(fields[4], 10, 64) // 0 means no file
	m.path = strings.ReplaceAll(strings.TrimLeft(rest, " "), `\012`, "\n")
	return m, true
}
