package boltstore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"slices"
)

// bbolt's meta page, as bbolt 1.5 writes it (internal/common/meta.go): behind
// a 16-byte page header magic, version, page size and flags as uint32, then
// root, root sequence, freelist, high-water page id, transaction id and an
// FNV-64a sum over all before it as uint64, in the machine's byte order.
const (
	boltMagic     = 0xED0CDAED
	boltPageHead  = 16
	boltMetaBytes = 64
)

// precheck looks at a file before bbolt maps it: a file shorter than its meta
// says would be a SIGBUS later, pages in a circle a hang. It returns ErrForeign
// for what bbolt never wrote and ErrDamaged for what it did not write like
// this.
func precheck(path string) error {
	st, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !st.Mode().IsRegular() {
		return fmt.Errorf("%w: it is not a regular file", ErrForeign)
	}
	f, done, err := openPages(path)
	if err != nil {
		return err
	}
	defer done()
	if want := int64(f.meta.pages) * int64(f.meta.pageSize); want > st.Size() {
		return fmt.Errorf("%w: truncated: it has %d bytes and should have at least %d", ErrDamaged, st.Size(), want)
	}
	return f.scan()
}

// pageSizes are those that a file can have; its system's page size is the usual.
var pageSizes = []uint32{1024, 2048, 4096, 8192, 16384, 32768, 65536}

// newestMeta finds the valid meta page of the latest transaction. The first one
// says where the second is. Only if it is lost is that looked for, and the first
// place counts, as with bbolt: behind it there may be anything.
func newestMeta(r io.ReaderAt) (*boltMeta, error) {
	best, err := readBoltMeta(r, 0)
	if err != nil {
		return nil, err
	}
	seen := best.magic == boltMagic
	sizes := pageSizes
	if best.valid() {
		sizes = []uint32{best.pageSize}
	} else {
		best = nil
	}
	for _, size := range sizes {
		m, err := readBoltMeta(r, int64(size))
		if err != nil {
			return nil, err
		}
		seen = seen || m.magic == boltMagic
		if m.valid() && m.pageSize == size && (best == nil || m.txid > best.txid) {
			best = m
			break
		}
	}
	const most = 1 << 44 // bytes; more is no size that we wrote
	switch {
	case best == nil && !seen:
		return nil, fmt.Errorf("%w: it has no bbolt meta page", ErrForeign)
	case best == nil:
		return nil, fmt.Errorf("%w: both meta pages are broken", ErrDamaged)
	case best.pages > most/uint64(best.pageSize):
		return nil, fmt.Errorf("%w: it should have %d pages", ErrDamaged, best.pages)
	}
	return best, nil
}

type boltMeta struct {
	magic, version, pageSize uint32
	root, freelist           uint64
	pages, txid, sum         uint64
	body                     []byte
}

func readBoltMeta(r io.ReaderAt, at int64) (*boltMeta, error) {
	b := make([]byte, boltMetaBytes)
	n, err := r.ReadAt(b, at+boltPageHead)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n < len(b) {
		return &boltMeta{}, nil
	}
	o := binary.NativeEndian
	return &boltMeta{
		magic: o.Uint32(b), version: o.Uint32(b[4:]), pageSize: o.Uint32(b[8:]),
		root: o.Uint64(b[16:]), freelist: o.Uint64(b[32:]),
		pages: o.Uint64(b[40:]), txid: o.Uint64(b[48:]), sum: o.Uint64(b[56:]), body: b[:56],
	}, nil
}

func (m *boltMeta) valid() bool {
	if m.magic != boltMagic || m.version != 2 || !slices.Contains(pageSizes, m.pageSize) {
		return false
	}
	h := fnv.New64a()
	h.Write(m.body)
	return h.Sum64() == m.sum
}
