package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// badSectors is a disk some of whose sectors cannot be read. It is a FUSE file system of
// one folder, in the memory of a child process: a fault in the map of one of its files
// must not wait for the program that has the fault.
type badSectors struct{ dir string }

const badSectorsEnv = "KUBEWAKE_TEST_BAD_SECTORS"

// newBadSectors calls its test once more, in the child.
func newBadSectors(t *testing.T) badSectors {
	t.Helper()
	if os.Getenv(badSectorsEnv) != "" {
		serveBadSectors(os.NewFile(3, "fuse"))
		os.Exit(0)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root can mount")
	}
	fuse, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no file system of the test's own can be mounted here: ", err)
	}
	dir := t.TempDir()
	if err := syscall.Mount("bad", dir, "fuse", 0,
		fmt.Sprintf("fd=%d,rootmode=40700,user_id=0,group_id=0", fuse.Fd())); err != nil {
		t.Skip("no file system of the test's own can be mounted here: ", errors.Join(err, fuse.Close()))
	}
	t.Cleanup(func() { must(t, syscall.Unmount(dir, syscall.MNT_DETACH)) })
	child := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(os.Environ(), badSectorsEnv+"=1")
	child.ExtraFiles, child.Stdout, child.Stderr = []*os.File{fuse}, os.Stderr, os.Stderr
	must(t, child.Start())
	must(t, fuse.Close())
	t.Cleanup(func() { _, _ = child.Process.Kill(), child.Wait() }) // it says that it was killed
	return badSectors{dir}
}

// bad makes a page of a file unreadable until it is written again.
func (b badSectors) bad(t *testing.T, path string, page int) {
	t.Helper()
	name := fmt.Sprintf("bad:%s:%d", filepath.Base(path), page)
	if _, err := os.Create(filepath.Join(b.dir, name)); !errors.Is(err, syscall.EPERM) {
		t.Fatal(err)
	}
	f, err := os.Open(path) // which makes the kernel forget what it has read
	must(t, err)
	must(t, f.Close())
}

const sector = 4096

// aSync stands for a page in badSectors.bad: the file's syncs fail from then on.
const aSync = -1

// badFile is a file in the child.
type badFile struct {
	data []byte
	mode uint32
	bad  map[int]bool
}

// badFolder is the folder in the child. Its nodes are numbered from 2.
type badFolder struct {
	names map[string]uint64
	nodes []*badFile
}

// serveBadSectors answers the kernel until the file system is unmounted.
func serveBadSectors(fuse *os.File) {
	d := &badFolder{names: map[string]uint64{}, nodes: make([]*badFile, 2)}
	b := make([]byte, 1<<20)
	for {
		n, err := fuse.Read(b)
		if err != nil {
			return
		}
		o := binary.NativeEndian
		op, in := o.Uint32(b[4:]), b[40:n]
		if op == 2 || op == 36 || op == 42 { // forget, interrupt, batch forget have no answer
			continue
		}
		out, errno := d.answer(op, o.Uint64(b[16:]), in)
		head := asBytes(uint32(16+len(out)), -int32(errno), o.Uint64(b[8:]))
		if _, err := fuse.Write(append(head, out...)); err != nil {
			return
		}
	}
}

// asBytes is the bytes of some numbers, as the kernel writes them.
func asBytes(fields ...any) (b []byte) {
	for _, f := range fields {
		var err error
		if b, err = binary.Append(b, binary.NativeEndian, f); err != nil {
			panic(err)
		}
	}
	return b
}

// answer answers one request, by the kernel's include/uapi/linux/fuse.h.
func (d *badFolder) answer(op uint32, node uint64, in []byte) (out []byte, errno syscall.Errno) {
	o := binary.NativeEndian
	var f *badFile
	if node < uint64(len(d.nodes)) {
		f = d.nodes[node]
	}
	switch op {
	case 1: // lookup
		return d.entry(strings.TrimSuffix(string(in), "\x00"))
	case 3: // getattr
		return asBytes(uint64(0), uint64(0), d.attr(node)), 0
	case 4: // setattr
		valid := o.Uint32(in)
		if valid&1 != 0 && f != nil {
			f.mode = o.Uint32(in[68:]) & 0o777
		}
		if valid&8 != 0 {
			f.resize(o.Uint64(in[16:]))
		}
		return asBytes(uint64(0), uint64(0), d.attr(node)), 0
	case 10: // unlink
		delete(d.names, strings.TrimSuffix(string(in), "\x00"))
		return nil, 0
	case 12: // rename
		return nil, d.rename(in[8:], 0)
	case 45: // rename2
		return nil, d.rename(in[16:], o.Uint32(in[8:]))
	case 13: // link
		name := strings.TrimSuffix(string(in[8:]), "\x00")
		d.names[name] = o.Uint64(in)
		return d.entry(name)
	case 14, 27: // open, opendir
		return make([]byte, 16), 0
	case 15: // read
		return f.read(o.Uint64(in[8:]), uint64(o.Uint32(in[16:])))
	case 16: // write
		f.write(o.Uint64(in[8:]), in[40:])
		return asBytes(uint64(len(in) - 40)), 0
	case 17: // statfs
		return asBytes(uint64(1<<20), uint64(1<<20), uint64(1<<20), uint64(0), uint64(0), uint32(sector), uint32(255),
			uint32(sector), [7]uint32{}), 0
	case 20: // fsync
		if f != nil && f.bad[aSync] {
			return nil, syscall.EIO
		}
		return nil, 0
	case 18, 25, 29, 30, 34, 38: // release, flush, releasedir, fsyncdir, access, destroy
		return nil, 0
	case 26: // init: version 7.31, no readahead
		return asBytes(uint32(7), uint32(31), uint32(0), uint32(0), uint32(0), uint32(1<<17), uint32(1),
			[10]uint32{})[:64], 0
	case 28: // readdir
		return d.list(o.Uint64(in[8:])), 0
	case 35: // create
		return d.create(strings.TrimSuffix(string(in[16:]), "\x00"), o.Uint32(in[4:]))
	}
	return nil, syscall.ENOSYS
}

func (d *badFolder) attr(node uint64) []byte {
	mode, size, links := uint32(syscall.S_IFDIR|0o700), uint64(0), uint32(1)
	if node > 1 {
		f := d.nodes[node]
		mode, size = syscall.S_IFREG|f.mode, uint64(len(f.data))
	}
	return asBytes(node, size, (size+511)/512, [3]uint64{}, [3]uint32{}, mode, links, uint32(0), uint32(0), uint32(0),
		uint32(sector), uint32(0))
}

func (d *badFolder) entry(name string) ([]byte, syscall.Errno) {
	node, ok := d.names[name]
	if !ok {
		return nil, syscall.ENOENT
	}
	return asBytes(node, [3]uint64{}, uint64(0), d.attr(node)), 0
}

// create also takes the names that [badSectors.bad] makes.
func (d *badFolder) create(name string, mode uint32) ([]byte, syscall.Errno) {
	if parts := strings.Split(name, ":"); parts[0] == "bad" {
		page := 0
		if _, err := fmt.Sscan(parts[2], &page); err != nil {
			return nil, syscall.EINVAL
		}
		d.nodes[d.names[parts[1]]].bad[page] = true
		return nil, syscall.EPERM
	}
	d.names[name] = uint64(len(d.nodes))
	d.nodes = append(d.nodes, &badFile{mode: mode & 0o777, bad: map[int]bool{}})
	out, errno := d.entry(name)
	return append(out, make([]byte, 16)...), errno
}

func (d *badFolder) rename(names []byte, flags uint32) syscall.Errno {
	from, to, _ := strings.Cut(strings.TrimSuffix(string(names), "\x00"), "\x00")
	was, exists := d.names[to]
	switch flags {
	case 0:
		d.names[to] = d.names[from]
		delete(d.names, from)
	case 1: // RENAME_NOREPLACE
		if exists {
			return syscall.EEXIST
		}
		return d.rename(names, 0)
	case 2: // RENAME_EXCHANGE
		d.names[from], d.names[to] = was, d.names[from]
	default:
		return syscall.EINVAL
	}
	return 0
}

func (d *badFolder) list(from uint64) (out []byte) {
	if from > 0 {
		return nil
	}
	for name, node := range d.names {
		out = append(out, asBytes(node, uint64(1), uint32(len(name)), uint32(syscall.DT_REG))...)
		out = append(out, name...)
		out = append(out, make([]byte, -len(out)&7)...)
	}
	return out
}

func (f *badFile) resize(size uint64) {
	if more := int(size) - len(f.data); more > 0 {
		f.data = append(f.data, make([]byte, more)...)
	}
	f.data = f.data[:size]
}

func (f *badFile) read(from, n uint64) ([]byte, syscall.Errno) {
	end := min(from+n, uint64(len(f.data)))
	for page := range f.bad {
		if at := uint64(page) * sector; at < end && from < at+sector {
			return nil, syscall.EIO
		}
	}
	return f.data[min(from, end):end], 0
}

// write writes whole sectors or parts of them. A sector that is written can be read again.
func (f *badFile) write(at uint64, b []byte) {
	f.resize(max(at+uint64(len(b)), uint64(len(f.data))))
	copy(f.data[at:], b)
	for page := at / sector; page*sector < at+uint64(len(b)); page++ {
		delete(f.bad, int(page))
	}
}
