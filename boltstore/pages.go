package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
)

// pageFile reads bbolt's pages (bbolt 1.5, internal/common/page.go) without
// bbolt, which believes what it reads: pages that point in a circle, as lost
// writes leave them, hang it or exhaust memory. It is how a file is looked at
// before bbolt opens it, and how a damaged one is read.
//
// A page begins with its id (uint64), flags and count of elements (uint16) and
// the number of pages that follow it and belong to it (uint32). A branch
// element is position, key size (uint32) and page id (uint64); a leaf element
// is flags, position, key size and value size (uint32). Positions count from
// the element. A bucket is a leaf element whose value is its root page and
// sequence (uint64) and, if the root is 0, a page without an id.
type pageFile struct {
	r     io.ReaderAt
	meta  *boltMeta
	pages uint64 // that there are, at most those of meta
}

func newPageFile(r io.ReaderAt, m *boltMeta, size int64) *pageFile {
	n := uint64(m.pageSize)
	return &pageFile{r, m, min(m.pages, (uint64(size)+n-1)/n)}
}

const (
	pageHead   = 16
	pageBranch = 1
	pageLeaf   = 2
	pageFree   = 16
	leafBucket = 1
	maxDepth   = 64 // of a tree; bbolt's of a billion keys have 8
)

// openPages opens the file by its newest meta page, whatever its size.
func openPages(path string) (*pageFile, func(), error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	pages, err := pageFileOf(f)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return pages, func() { _ = f.Close() }, nil
}

// pageFileOf is openPages of a file that is open.
func pageFileOf(f *os.File) (*pageFile, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	m, err := newestMeta(f)
	if err != nil {
		return nil, err
	}
	return newPageFile(f, m, st.Size()), nil
}

// bucketRef is where a bucket's content is.
type bucketRef struct {
	root   uint64
	inline []byte
	seq    uint64
}

func (f *pageFile) top() bucketRef { return bucketRef{root: f.meta.root} }

// pageSet is the pages that a walk has come to.
type pageSet []uint64

func (f *pageFile) newSet() pageSet { return make(pageSet, f.pages/64+1) }

func (s pageSet) has(id uint64) bool { return s[id/64]&(1<<(id%64)) != 0 }
func (s pageSet) add(id uint64)      { s[id/64] |= 1 << (id % 64) }

type page struct {
	id       uint64
	flags    uint16
	count    int
	overflow uint64
}

func parsePageHead(b []byte) page {
	o := binary.NativeEndian
	return page{o.Uint64(b), o.Uint16(b[8:]), int(o.Uint16(b[10:])), uint64(o.Uint32(b[12:]))}
}

// head reads a page's head.
func (f *pageFile) head(id uint64) (page, error) { return f.begin(id, make([]byte, pageHead)) }

// begin reads the beginning of a page into b, and its head from there.
func (f *pageFile) begin(id uint64, b []byte) (p page, err error) {
	if id < 2 || id >= f.pages {
		return p, fmt.Errorf("%w: page %d is not in the file", ErrDamaged, id)
	}
	if _, err := f.r.ReadAt(b, int64(id)*int64(f.meta.pageSize)); err != nil {
		return p, fmt.Errorf("%w: page %d cannot be read: %v", ErrDamaged, id, err)
	}
	return parsePageHead(b), nil
}

// child is a page that a branch page leads to.
type child struct {
	id     uint64
	key    []byte // that leads to it; bbolt has the child's first key there
	page   page
	err    error
	astray bool // its first key is another one: bbolt looks in the wrong place
}

// look reads the beginnings of the children's pages, on all cores.
func (f *pageFile) look(children []child) {
	workers := max(min(runtime.GOMAXPROCS(0), len(children)/16), 1)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			b := make([]byte, f.meta.pageSize)
			for i := w; i < len(children); i += workers {
				f.lookInto(&children[i], b)
			}
		})
	}
	wg.Wait()
}

func (f *pageFile) lookInto(c *child, b []byte) {
	if c.page, c.err = f.begin(c.id, b); c.err != nil {
		return
	}
	o := binary.NativeEndian
	pos, size := uint64(o.Uint32(b[pageHead:])), uint64(o.Uint32(b[pageHead+4:]))
	if c.page.flags == pageLeaf {
		pos, size = uint64(o.Uint32(b[pageHead+4:])), uint64(o.Uint32(b[pageHead+8:]))
	}
	if pos += pageHead; c.page.count == 0 || size != uint64(len(c.key)) || pos+size > (c.page.overflow+1)*uint64(len(b)) {
		c.astray = true
		return
	}
	first := b[min(pos, uint64(len(b))):]
	if uint64(len(first)) < size { // it begins or ends on a page that belongs to this one
		first = make([]byte, size)
		if _, err := f.r.ReadAt(first, int64(c.id)*int64(len(b))+int64(pos)); err != nil {
			c.err = fmt.Errorf("%w: page %d cannot be read: %v", ErrDamaged, c.id, err)
			return
		}
	}
	c.astray = !bytes.Equal(first[:size], c.key)
}

// visit reads a page's head. Each page may be come to once.
func (f *pageFile) visit(id uint64, seen pageSet) (page, error) {
	p, err := f.head(id)
	return f.come(id, p, err, seen)
}

func (f *pageFile) come(id uint64, p page, err error, seen pageSet) (page, error) {
	bad := func(why string) (page, error) { return page{}, fmt.Errorf("%w: page %d %s", ErrDamaged, id, why) }
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

func (f *pageFile) content(p page) ([]byte, error) {
	b := make([]byte, (p.overflow+1)*uint64(f.meta.pageSize))
	if _, err := f.r.ReadAt(b, int64(p.id)*int64(f.meta.pageSize)); err != nil {
		return nil, fmt.Errorf("%w: page %d cannot be read: %v", ErrDamaged, p.id, err)
	}
	return b, nil
}

// walker goes through trees. leaf is called for each element of a leaf page,
// sub is nil where it is no bucket; where data says so, leaf pages are only
// come to. What cannot be read is left out, and in errs.
type walker struct {
	f    *pageFile
	seen pageSet
	data bool
	leaf func(k, v []byte, sub *bucketRef)
	errs problems
}

func (w *walker) bucket(b bucketRef) {
	if b.root != 0 {
		w.tree(b.root, 0)
	} else if len(b.inline) < pageHead || uint64(len(b.inline)) > uint64(w.f.meta.pageSize)/4 {
		w.fail("an inline bucket of %d bytes", len(b.inline)) // bbolt inlines up to a quarter of a page
	} else if p := parsePageHead(b.inline); p.flags != pageLeaf {
		w.fail("an inline bucket of flags %x", p.flags)
	} else {
		w.leaves(p, b.inline, true)
	}
}

func (w *walker) fail(format string, args ...any) {
	w.errs.add(fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...)))
}

func (w *walker) tree(id uint64, depth int) {
	p, err := w.f.head(id)
	w.page(id, depth, p, err)
}

func (w *walker) page(id uint64, depth int, p page, err error) {
	p, err = w.f.come(id, p, err, w.seen)
	if err == nil && depth > maxDepth {
		err = fmt.Errorf("%w: page %d is too deep in a tree", ErrDamaged, id)
	}
	if err == nil && p.flags == pageLeaf && w.data {
		return
	}
	var b []byte
	if err == nil {
		b, err = w.f.content(p)
	}
	if err != nil {
		w.errs.add(err)
		return
	}
	switch p.flags {
	case pageLeaf:
		w.leaves(p, b, false)
	case pageBranch:
		if pageHead+16*p.count > len(b) || p.count == 0 {
			w.fail("page %d has %d elements", id, p.count)
			return
		}
		o := binary.NativeEndian
		children := make([]child, p.count)
		for i := range children {
			e := b[pageHead+16*i:]
			pos, size := uint64(o.Uint32(e)), uint64(o.Uint32(e[4:]))
			if children[i].id = o.Uint64(e[8:]); pos+size <= uint64(len(e)) {
				children[i].key = e[pos : pos+size]
			}
		}
		w.f.look(children)
		for _, c := range children {
			before := w.errs.n
			if w.page(c.id, depth+1, c.page, c.err); c.astray && w.errs.n == before {
				w.fail("page %d is not where its keys are looked for", c.id)
			}
		}
	default:
		w.fail("page %d has flags %x", id, p.flags)
	}
}

func (w *walker) leaves(p page, b []byte, inline bool) {
	if pageHead+16*p.count > len(b) {
		w.fail("page %d has %d elements", p.id, p.count)
		return
	}
	o := binary.NativeEndian
	for i := range p.count {
		e := b[pageHead+16*i:]
		pos, ksize, vsize := uint64(o.Uint32(e[4:])), uint64(o.Uint32(e[8:])), uint64(o.Uint32(e[12:]))
		if pos+ksize+vsize > uint64(len(e)) {
			w.fail("page %d, element %d reaches beyond it", p.id, i)
			continue
		}
		k, v := e[pos:pos+ksize], e[pos+ksize:pos+ksize+vsize]
		var sub *bucketRef
		if o.Uint32(e)&leafBucket != 0 {
			if inline { // bbolt does not do that, and it could be of any depth
				w.fail("element %d of an inline bucket is a bucket", i)
				continue
			}
			if len(v) < 16 {
				w.fail("page %d, element %d is half a bucket", p.id, i)
				continue
			}
			if sub = (&bucketRef{root: o.Uint64(v), seq: o.Uint64(v[8:])}); sub.root == 0 {
				sub.inline = v[16:]
			}
		}
		if w.leaf != nil {
			w.leaf(k, v, sub)
		}
	}
}

// each calls fn for what can be read of a bucket, in order; k and v stay valid.
func (f *pageFile) each(b bucketRef, fn func(k, v []byte, sub *bucketRef)) error {
	w := walker{f: f, seen: f.newSet(), leaf: fn}
	w.bucket(b)
	return w.errs.err()
}

// scan verifies that the pages form trees, each page in one place, and that
// none of them is called free, and that what leads to each is its first key.
// It reads the beginning of each page, all of branch pages, and of leaves those
// that can hold buckets.
func (f *pageFile) scan() error {
	seen := f.newSet()
	var errs problems
	var bucket func(b bucketRef, path []string)
	bucket = func(b bucketRef, path []string) {
		w := walker{f: f, seen: seen, data: holdsData(path)}
		var subs []func()
		w.leaf = func(k, _ []byte, sub *bucketRef) {
			if sub != nil {
				subs = append(subs, func() { bucket(*sub, append(path[:len(path):len(path)], string(k))) })
			}
		}
		w.bucket(b)
		errs.add(w.errs.err())
		if len(path) > maxDepth {
			return
		}
		for _, fn := range subs {
			fn()
		}
	}
	bucket(f.top(), nil)
	if errs.n == 0 {
		errs.add(f.scanFree(seen))
	}
	return errs.err()
}

// holdsData says whether a bucket holds data and no buckets: items, an index
// or a journal's block.
func holdsData(path []string) bool {
	up := func(n int) string {
		if n >= len(path) {
			return ""
		}
		return path[len(path)-1-n]
	}
	return up(0) == string(bucketItems) && up(2) == string(bucketGen) ||
		up(1) == string(bucketIndex) && up(3) == string(bucketGen) ||
		up(1) == string(bucketJournal) && up(3) == string(bucketSources)
}

// scanFree verifies the list of free pages.
func (f *pageFile) scanFree(seen pageSet) error {
	const none = ^uint64(0) // bbolt finds them itself
	if f.meta.freelist == none {
		return nil
	}
	p, err := f.visit(f.meta.freelist, seen)
	if err != nil {
		return err
	}
	b, err := f.content(p)
	if err != nil {
		return err
	}
	o := binary.NativeEndian
	ids, count := b[pageHead:], uint64(p.count)
	if p.count == 0xFFFF { // too many for 16 bits
		count, ids = o.Uint64(ids), ids[8:]
	}
	if p.flags != pageFree || count > uint64(len(ids)/8) {
		return fmt.Errorf("%w: the list of free pages: flags %x, %d pages", ErrDamaged, p.flags, count)
	}
	for i := range count {
		id := o.Uint64(ids[8*i:])
		if id < 2 || id >= f.pages || seen.has(id) {
			return fmt.Errorf("%w: page %d is in use and called free", ErrDamaged, id)
		}
		seen.add(id)
	}
	return nil
}
