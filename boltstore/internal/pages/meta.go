package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// A meta page, as bbolt 1.5 writes it (internal/common/meta.go), has a 16-byte
// page head; then magic, version, page size and flags (uint32); then root, root
// sequence, freelist, number of pages, transaction id and an FNV-64a sum over the
// bytes before it (uint64), all in the machine's byte order.
const (
	magic     = 0xED0CDAED
	pageHead  = 16
	metaBytes = 64
)

// mark follows a meta page's fields once a program has met damage in the file. bbolt's next
// commit to the page removes it.
const mark = "damaged"

// ErrMarked is the [faults.ErrDamaged] of a file with a mark.
var ErrMarked = fmt.Errorf("%w: a program has met damage in it", faults.ErrDamaged)

// Mark marks an open bbolt file. Each meta page has the mark, since a commit may be under way.
func Mark(f *os.File) error {
	m, err := newestMeta(f)
	if err != nil {
		return err // the next program sees that, too
	}
	var errs faults.List
	for i := range int64(2) {
		_, err := f.WriteAt([]byte(mark), i*int64(m.pageSize)+pageHead+metaBytes)
		errs.Add(err)
	}
	return errs.Err()
}

// pageSizes are the sizes that bbolt accepts.
var pageSizes = []uint32{1024, 2048, 4096, 8192, 16384, 32768, 65536}

// newestMeta returns the valid meta page of the latest transaction. The first meta page
// says where the second one is. If the first is broken, newestMeta looks for the second
// at each page size and takes the first match, as bbolt does. Later pages may hold
// anything. A page that the disk cannot read counts as broken, and is noted in the result.
func newestMeta(r io.ReaderAt) (*meta, error) {
	var unread error
	marked := false
	read := func(at int64) *meta {
		m, err := readMeta(r, at)
		if err != nil {
			unread = fmt.Errorf("%w: the disk cannot read a meta page: %w", faults.ErrDamaged, err)
		}
		marked = marked || m.marked
		return m
	}
	best := read(0)
	seen := best.magic == magic
	sizes := pageSizes
	if best.valid() {
		sizes = []uint32{best.pageSize}
	} else {
		best = nil
	}
	for _, size := range sizes {
		m := read(int64(size))
		seen = seen || m.magic == magic
		if m.valid() && m.pageSize == size && (best == nil || m.txid > best.txid) {
			best = m
			break
		}
	}
	const most = 1 << 44 // bytes; kubewake never writes a larger file
	switch {
	case best == nil && unread != nil:
		return nil, unread
	case best == nil && !seen && !traces(r):
		return nil, fmt.Errorf("%w: it has no bbolt meta page", faults.ErrForeign)
	case best == nil:
		return nil, fmt.Errorf("%w: both meta pages are broken", faults.ErrDamaged)
	case best.pages > most/uint64(best.pageSize):
		return nil, fmt.Errorf("%w: it should have %d pages", faults.ErrDamaged, best.pages)
	}
	best.unread, best.marked = unread, marked
	return best, nil
}

// traces says whether a file without meta pages may once have been a bbolt file. It does
// if it begins with zeros, as after a write that never reached the disk, or with ones, as
// erased flash does. It also does if one of its pages is a bbolt page at its place.
func traces(r io.ReaderAt) bool {
	const most = 1 << 16 // pages to look at
	begin := make([]byte, pageHead+metaBytes)
	n, _ := r.ReadAt(begin, 0)
	if n > 0 && (begin[0] == 0 || begin[0] == 0xff) && bytes.Count(begin[:n], begin[:1]) == n {
		return true
	}
	b := make([]byte, HeadSize)
	for _, size := range pageSizes {
		for id := uint64(1); id < most; id++ {
			if _, err := r.ReadAt(b, int64(id)*int64(size)); err != nil {
				break
			}
			p := parsePageHead(b)
			if p.id == id && (p.Flags == Branch || p.Flags == Leaf || p.Flags == free) {
				return true
			}
		}
	}
	return false
}

type meta struct {
	magic, version, pageSize uint32
	root, freelist           uint64
	pages, txid, sum         uint64
	body                     []byte
	unread                   error // why the other meta page, which may be newer, cannot be read
	marked                   bool  // one of the two is
}

func readMeta(r io.ReaderAt, at int64) (*meta, error) {
	b := make([]byte, metaBytes+len(mark))
	n, err := r.ReadAt(b, at+pageHead)
	if err != nil && !errors.Is(err, io.EOF) {
		return &meta{}, err
	}
	if n < len(b) {
		return &meta{}, nil
	}
	o := binary.NativeEndian
	return &meta{
		magic: o.Uint32(b), version: o.Uint32(b[4:]), pageSize: o.Uint32(b[8:]),
		root: o.Uint64(b[16:]), freelist: o.Uint64(b[32:]),
		pages: o.Uint64(b[40:]), txid: o.Uint64(b[48:]), sum: o.Uint64(b[56:]), body: b[:56],
		marked: string(b[metaBytes:]) == mark,
	}, nil
}

func (m *meta) valid() bool {
	if m.magic != magic || m.version != 2 || !slices.Contains(pageSizes, m.pageSize) {
		return false
	}
	h := fnv.New64a()
	h.Write(m.body)
	return h.Sum64() == m.sum
}

// Transaction is the id of the latest transaction in the bbolt file r.
func Transaction(r io.ReaderAt) (uint64, error) {
	m, err := newestMeta(r)
	if err != nil {
		return 0, err
	}
	return m.txid, nil
}
