package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// File is the pages of one bbolt file, as its latest valid transaction left them. It
// only reads, and is safe for concurrent use.
type File struct {
	r     io.ReaderAt
	meta  *meta
	size  int64
	pages uint64 // in the file, at most as many as meta says
	// Stop says that a walk shall visit no more pages; nil is never. Who sets it knows that
	// what it was shown is a part.
	Stop func() bool
}

func newFile(r io.ReaderAt, m *meta, size int64) *File {
	n := uint64(m.pageSize)
	return &File{r, m, size, min(m.pages, (uint64(size)+n-1)/n), nil}
}

const (
	HeadSize   = 16
	Branch     = 1
	Leaf       = 2
	free       = 16
	leafBucket = 1
	MaxDepth   = 64 // levels of a tree or of nested buckets; a billion keys need 8
)

// Open opens the file at path, whatever its size. The caller calls the function
// when it has finished.
func Open(path string) (*File, func(), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	pages, err := FileOf(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return pages, func() { _ = f.Close() }, nil
}

// FileOf is [Open] for a file that is open already. The caller still closes it.
func FileOf(f *os.File) (*File, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m, err := newestMeta(f)
	if err != nil {
		return nil, err
	}
	return newFile(f, m, st.Size()), nil
}

// Bucket says where the content of a bucket is.
type Bucket struct {
	Root   uint64
	inline []byte
	Seq    uint64
}

// Top is the bucket that holds the top-level buckets.
func (f *File) Top() Bucket { return Bucket{Root: f.meta.root} }

// Page is the head of a page.
type Page struct {
	id       uint64
	Flags    uint16
	Count    int
	overflow uint64
}

func parsePageHead(b []byte) Page {
	o := binary.NativeEndian
	return Page{o.Uint64(b), o.Uint16(b[8:]), int(o.Uint16(b[10:])), uint64(o.Uint32(b[12:]))}
}

// Head reads the head of page id.
func (f *File) Head(id uint64) (Page, error) { return f.begin(id, make([]byte, HeadSize)) }

// begin reads the first bytes of page id into b, and parses the page's head.
func (f *File) begin(id uint64, b []byte) (p Page, err error) {
	if id < 2 || id >= f.pages {
		return p, fmt.Errorf("%w: page %d is not in the file", faults.ErrDamaged, id)
	}
	if _, err := f.r.ReadAt(b, int64(id)*int64(f.meta.pageSize)); err != nil {
		return p, fmt.Errorf("%w: page %d cannot be read: %v", faults.ErrDamaged, id, err)
	}
	return parsePageHead(b), nil
}

// Content reads page p whole, with the overflow pages that follow it.
func (f *File) Content(p Page) ([]byte, error) {
	b := make([]byte, (p.overflow+1)*uint64(f.meta.pageSize))
	if _, err := f.r.ReadAt(b, int64(p.id)*int64(f.meta.pageSize)); err != nil {
		return nil, fmt.Errorf("%w: page %d cannot be read: %v", faults.ErrDamaged, p.id, err)
	}
	return b, nil
}

// Empty is a file without buckets.
func Empty() *File { return newFile(bytes.NewReader(nil), &meta{pageSize: 4096}, 0) }

// Freelist is the page that has the list of free pages.
func (f *File) Freelist() uint64 { return f.meta.freelist }

// PageSize is the size of a page in bytes.
func (f *File) PageSize() int { return int(f.meta.pageSize) }

// pageSet is a set of page ids.
type pageSet []uint64

func (f *File) newSet() pageSet { return make(pageSet, f.pages/64+1) }

func (s pageSet) has(id uint64) bool { return s[id/64]&(1<<(id%64)) != 0 }
func (s pageSet) add(id uint64)      { s[id/64] |= 1 << (id % 64) }

// visit reads a page's head and marks the page as seen.
func (f *File) visit(id uint64, seen pageSet) (Page, error) {
	p, err := f.Head(id)
	return f.come(id, p, err, seen)
}

// come checks the head p of page id, and marks the page as seen. A page that comes
// twice is an error.
func (f *File) come(id uint64, p Page, err error, seen pageSet) (Page, error) {
	bad := func(why string) (Page, error) {
		return Page{}, fmt.Errorf("%w: page %d %s", faults.ErrDamaged, id, why)
	}
	if err != nil {
		return p, err
	}
	if p.id != id {
		return bad("is not the one that was written there")
	}
	if p.overflow >= f.pages-id {
		return bad("reaches beyond the end of the file")
	}
	for i := id; i <= id+p.overflow; i++ {
		if seen.has(i) {
			return bad("is used twice")
		}
		seen.add(i)
	}
	return p, nil
}
