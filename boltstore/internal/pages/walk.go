package pages

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"sort"
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// walker visits the pages of a bucket. It calls leaf for each element of a leaf page; sub
// is nil unless the element is a bucket. With data set it reads no leaf pages except for
// the lengths in inline ones. It skips pages that it cannot read, and adds the reason to
// errs.
type walker struct {
	f    *File
	seen pageSet
	data bool
	leaf func(k, v []byte, sub *Bucket)
	errs faults.List
	// leave, if not nil, is called in place of a visit to the leaf pages below a branch
	// page. late, if not nil, verifies more of a page. which, if not nil, says which children
	// of a branch page are visited.
	leave func()
	late  func(p Page) error
	which func(children []child) (from, to int)
}

func (w *walker) bucket(b Bucket) {
	if b.Root != 0 {
		w.tree(b.Root, 0)
	} else if len(b.inline) < HeadSize || uint64(len(b.inline)) > uint64(w.f.meta.pageSize)/4 {
		w.fail("an inline bucket of %d bytes", len(b.inline)) // bbolt inlines at most a quarter of a page
	} else if p := parsePageHead(b.inline); p.Flags != Leaf {
		w.fail("an inline bucket of flags %x", p.Flags)
	} else {
		// bbolt copies some inline buckets. Keys and values of the copy may then point
		// beyond it, if an element has a wrong length. No fault shows that, and Go's
		// collector ends the process.
		w.leaves(p, b.inline, nil, true)
	}
}

func (w *walker) fail(format string, args ...any) {
	w.errs.Add(fmt.Errorf("%w: %s", faults.ErrDamaged, fmt.Sprintf(format, args...)))
}

func (w *walker) tree(id uint64, depth int) {
	p, err := w.f.Head(id)
	w.page(id, depth, p, nil, err)
}

// page visits a page of a tree, whose keys come before the key end, unless that is nil.
func (w *walker) page(id uint64, depth int, p Page, end []byte, err error) {
	if w.f.Stop != nil && w.f.Stop() {
		return
	}
	p, err = w.f.come(id, p, err, w.seen)
	if err == nil && w.late != nil {
		err = w.late(p)
	}
	if err == nil && depth > MaxDepth {
		err = fmt.Errorf("%w: page %d is too deep in a tree", faults.ErrDamaged, id)
	}
	if err == nil && p.Flags == Leaf && w.data {
		return
	}
	var b []byte
	if err == nil {
		b, err = w.f.Content(p)
	}
	if err != nil {
		w.errs.Add(err)
		return
	}
	switch p.Flags {
	case Leaf:
		w.leaves(p, b, end, false)
	case Branch:
		if HeadSize+16*p.Count > len(b) || p.Count == 0 {
			w.fail("page %d has %d elements", id, p.Count)
			return
		}
		o := binary.NativeEndian
		children := make([]child, p.Count)
		next := uint64(16 * p.Count)
		for i := range children {
			e := b[HeadSize+16*i:]
			pos, size := uint64(o.Uint32(e)), uint64(o.Uint32(e[4:]))
			if 16*uint64(i)+pos != next {
				w.fail("page %d, element %d is not as bbolt writes it", id, i)
			}
			next = 16*uint64(i) + pos + size
			if children[i].id = o.Uint64(e[8:]); pos+size <= uint64(len(e)) {
				children[i].key = e[pos : pos+size]
			}
			if i > 0 && bytes.Compare(children[i-1].key, children[i].key) >= 0 {
				w.fail("page %d has keys in no order", id)
			}
		}
		from, to := 0, len(children)
		if w.which != nil {
			from, to = w.which(children)
		}
		if w.leave != nil {
			if w.f.look(children[:1]); children[0].err == nil && children[0].page.Flags == Leaf {
				w.leave() // bbolt's leaf pages are all in the same depth
				return
			}
		}
		w.f.look(children[from:to])
		for i := from; i < to; i++ {
			c := children[i]
			before, upTo := w.errs.Len(), end
			if i+1 < len(children) {
				upTo = children[i+1].key
			}
			if w.page(c.id, depth+1, c.page, upTo, c.err); c.astray && w.errs.Len() == before {
				w.fail("page %d is not where its keys are looked for", c.id)
			}
		}
	default:
		w.fail("page %d has flags %x", id, p.Flags)
	}
}

func (w *walker) leaves(p Page, b, end []byte, inline bool) {
	where := fmt.Sprintf("page %d", p.id)
	if inline {
		where = "an inline bucket"
	}
	if HeadSize+16*p.Count > len(b) {
		w.fail("%s has %d elements", where, p.Count)
		return
	}
	o := binary.NativeEndian
	var last []byte
	disorder := false
	// bbolt writes keys and values one after the other behind the elements. So each
	// element also shows how many elements there are.
	next := uint64(16 * p.Count)
	if rest := b[HeadSize:]; p.Count == 0 && len(bytes.Trim(rest[:min(16, len(rest))], "\x00")) > 0 {
		w.fail("%s has lost its elements", where)
	}
	for i := range p.Count {
		e := b[HeadSize+16*i:]
		pos, ksize, vsize := uint64(o.Uint32(e[4:])), uint64(o.Uint32(e[8:])), uint64(o.Uint32(e[12:]))
		if 16*uint64(i)+pos != next || o.Uint32(e)&^leafBucket != 0 {
			w.fail("%s, element %d is not as bbolt writes it", where, i)
		}
		next = 16*uint64(i) + pos + ksize + vsize
		if pos+ksize+vsize > uint64(len(e)) {
			w.fail("%s, element %d reaches beyond it", where, i)
			continue
		}
		k, v := e[pos:pos+ksize], e[pos+ksize:pos+ksize+vsize]
		if !w.data && !disorder && (i > 0 && bytes.Compare(last, k) >= 0 || end != nil && bytes.Compare(k, end) >= 0) {
			disorder = true
			w.fail("%s has keys in no order", where)
		}
		last = k
		var sub *Bucket
		if o.Uint32(e)&leafBucket != 0 {
			if inline { // bbolt never writes that, and it could nest without end
				w.fail("element %d of an inline bucket is a bucket", i)
				continue
			}
			if len(v) < 16 {
				w.fail("%s, element %d is half a bucket", where, i)
				continue
			}
			if sub = (&Bucket{Root: o.Uint64(v), Seq: o.Uint64(v[8:])}); sub.Root == 0 {
				sub.inline = v[16:]
			}
		}
		if w.leaf != nil {
			w.leaf(k, v, sub)
		}
	}
}

// Each calls fn in key order for each element of b that can be read. sub is nil unless
// the element is a bucket. k and v stay valid and belong to fn. The error lists the parts
// that could not be read.
func (f *File) Each(b Bucket, fn func(k, v []byte, sub *Bucket)) error {
	w := walker{f: f, seen: f.newSet(), leaf: fn}
	w.bucket(b)
	return w.errs.Err()
}

// Find returns the bucket called name in b. If it cannot, it returns an empty bucket and
// an error that lists the parts that could not be read.
func (f *File) Find(b Bucket, name []byte) (found Bucket, err error) {
	ok := false
	err = f.Each(b, func(k, _ []byte, sub *Bucket) {
		if sub != nil && bytes.Equal(k, name) {
			found, ok = *sub, true
		}
	})
	if !ok {
		var errs faults.List
		errs.Add(fmt.Errorf("%w: bucket %x is missing", faults.ErrDamaged, name))
		errs.Add(err)
		return Bucket{inline: emptyPage}, errs.Err()
	}
	return found, nil
}

// Once says whether is holds for any leaf page of the file, in use or not. So it sees
// elements of a bucket that were once together, whatever has been lost since. An element
// that is no bucket is nil.
func (f *File) Once(is func(page map[string]*Bucket) bool) bool {
	for id := uint64(2); id < f.pages; id++ {
		p, err := f.Head(id)
		if err != nil || p.Flags != Leaf || p.overflow > 0 {
			continue
		}
		b, err := f.Content(p)
		if err != nil {
			continue
		}
		page := map[string]*Bucket{}
		w := walker{f: f, leaf: func(k, _ []byte, sub *Bucket) { page[string(k)] = sub }}
		if w.leaves(p, b, nil, false); is(page) {
			return true
		}
	}
	return false
}

// emptyPage is an inline bucket with nothing in it.
var emptyPage = binary.NativeEndian.AppendUint16(make([]byte, 8, HeadSize), Leaf)[:HeadSize]

// child is a page that a branch page points to.
type child struct {
	id     uint64
	key    []byte // in the branch page; bbolt puts the child's first key there
	page   Page
	err    error
	astray bool // its first key differs: bbolt would search in the wrong place
}

// leads returns the child below which bbolt looks for key.
func leads(children []child, key []byte) (from, to int) {
	i := sort.Search(len(children), func(i int) bool { return bytes.Compare(children[i].key, key) > 0 })
	return max(i-1, 0), max(i, 1)
}

// beginning is how many bytes are read of each page. The first key follows the page's
// elements of 16 bytes each. Reading whole pages would make the opening of a large file
// slower.
const beginning = 256

// look reads the first bytes of each child's page on all cores.
func (f *File) look(children []child) {
	workers := max(min(runtime.GOMAXPROCS(0), len(children)/16), 1)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			b := make([]byte, min(uint64(f.meta.pageSize), beginning))
			for i := w; i < len(children); i += workers {
				f.lookInto(&children[i], b)
			}
		})
	}
	wg.Wait()
}

// lookInto reads the beginning of a child's page into b.
func (f *File) lookInto(c *child, b []byte) {
	if c.page, c.err = f.begin(c.id, b); c.err != nil {
		return
	}
	o := binary.NativeEndian
	pos, size := uint64(o.Uint32(b[HeadSize:])), uint64(o.Uint32(b[HeadSize+4:]))
	if c.page.Flags == Leaf {
		pos, size = uint64(o.Uint32(b[HeadSize+4:])), uint64(o.Uint32(b[HeadSize+8:]))
	}
	pageSize := uint64(f.meta.pageSize)
	if pos += HeadSize; c.page.Count == 0 || size != uint64(len(c.key)) || pos+size > (c.page.overflow+1)*pageSize {
		c.astray = true
		return
	}
	first := b[min(pos, uint64(len(b))):]
	if uint64(len(first)) < size { // the key begins or ends further on
		first = make([]byte, size)
		if _, err := f.r.ReadAt(first, int64(c.id*pageSize+pos)); err != nil {
			c.err = fmt.Errorf("%w: page %d cannot be read: %v", faults.ErrDamaged, c.id, err)
			return
		}
	}
	c.astray = !bytes.Equal(first[:size], c.key)
}
