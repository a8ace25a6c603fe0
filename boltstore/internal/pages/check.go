package pages

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// Check verifies the file at path before bbolt maps it. In a file that is too short,
// bbolt gets a SIGBUS. If pages form a circle, it hangs.
//
// Check returns [faults.ErrForeign] if bbolt never wrote the file, and
// [faults.ErrDamaged] if its pages are not as bbolt writes them. flat says whether the
// bucket at path holds no buckets: its leaf pages are then not read. lost says that some
// pages are neither in use nor free, which is so if a write that used them was lost.
func Check(path string, flat func(path []string) bool) (lost bool, err error) {
	f, done, err := open(path)
	if err != nil {
		return false, err
	}
	defer done()
	seen, err := f.scan(flat, nil)
	if f.meta.marked {
		err = faults.Join(ErrMarked, err)
	}
	return err == nil && f.lost(seen) != nil, err
}

// open is [Open] for a regular file: to open another may wait for ever.
func open(path string) (*File, func(), error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%w: it is not a regular file", faults.ErrForeign)
	}
	return Open(path)
}

// Check is the function Check for an open file, into which nothing writes.
func (f *File) Check(flat func(path []string) bool) error {
	_, err := f.scan(flat, nil)
	return err
}

// Verify is [Check] for an open file, with all leaf pages read. Each page must be in use
// or free. Unlike bbolt's own check it does not crash on a damaged file. Nothing may
// write to the file at the same time.
func (f *File) Verify() error {
	seen, err := f.scan(func([]string) bool { return false }, nil)
	if f.meta.marked {
		err = faults.Join(ErrMarked, err)
	}
	if err != nil {
		return err
	}
	return f.lost(seen)
}

// lost returns an error if pages are not in seen, which has those in use and those free.
func (f *File) lost(seen pageSet) error {
	if f.meta.freelist == noFreelist {
		return nil
	}
	var errs faults.List
	for id := uint64(2); id < f.pages; id++ {
		if !seen.has(id) {
			errs.Add(fmt.Errorf("page %d is %s", id, Lost))
		}
	}
	return errs.Err()
}

// Lost is the text of [File.Verify] for a page that nothing will use again. Such a page
// costs room but no content.
const Lost = "neither in use nor free"

// scan verifies that the pages form trees. Each page must be used once and not be free,
// and the key that leads to a page must be the page's first. scan reads the first bytes
// of each page. It reads branch pages whole, and leaf pages that can hold buckets. It
// leaves the leaf pages of a bucket for which left, unless it is nil, returns a function.
// That is called if there are some.
func (f *File) scan(flat func(path []string) bool, left func(path []string, root uint64) func()) (
	seen pageSet, err error,
) {
	if f.meta.unread != nil {
		return nil, f.meta.unread
	}
	if want := int64(f.meta.pages) * int64(f.meta.pageSize); want > f.size {
		return nil, fmt.Errorf("%w: truncated: it has %d bytes and should have at least %d", faults.ErrDamaged,
			f.size, want)
	}
	seen = f.newSet()
	var errs faults.List
	var bucket func(b Bucket, path []string)
	bucket = func(b Bucket, path []string) {
		w := walker{f: f, seen: seen, data: flat(path)}
		var subs []func()
		w.leaf = func(k, _ []byte, sub *Bucket) {
			if sub != nil {
				subs = append(subs, func() { bucket(*sub, append(path[:len(path):len(path)], string(k))) })
			}
		}
		if left != nil {
			w.leave = left(path, b.Root)
		}
		w.bucket(b)
		errs.Add(w.errs.Err())
		if len(path) > MaxDepth {
			return
		}
		for _, fn := range subs {
			fn()
		}
	}
	bucket(f.Top(), nil)
	if errs.Len() == 0 {
		errs.Add(f.scanFree(seen))
	}
	return seen, errs.Err()
}

const noFreelist = ^uint64(0) // bbolt works it out

// CheckFreelist verifies the head of the page with the list of free pages. Each commit of
// bbolt frees that page, at the place and in the length that its head states. If the head
// is damaged, the commit would free pages in use, or billions of pages, which takes all
// memory.
func (f *File) CheckFreelist() error {
	if f.meta.unread != nil || f.meta.freelist == noFreelist {
		return f.meta.unread
	}
	b := make([]byte, HeadSize+8)
	p, err := f.begin(f.meta.freelist, b)
	if err != nil {
		return err
	}
	count := uint64(p.Count)
	if p.Count == 0xFFFF {
		count = binary.NativeEndian.Uint64(b[HeadSize:]) + 1
	}
	// bbolt computes the length before it takes the pages from the list itself.
	length, size := p.overflow+1, f.meta.pageSize
	fits := func(n uint64) bool { return (HeadSize+8*n)/uint64(size)+1 == length }
	if p.id != f.meta.freelist || p.Flags != free || length > f.pages || !fits(count) && !fits(count+length) &&
		!fits(count+length+1) {
		return fmt.Errorf("%w: page %d should list the free pages, and has the head %x", faults.ErrDamaged,
			f.meta.freelist, b[:HeadSize])
	}
	return nil
}

// scanFree verifies the list of free pages: none of them may be in seen.
func (f *File) scanFree(seen pageSet) error {
	if f.meta.freelist == noFreelist {
		return nil
	}
	p, err := f.visit(f.meta.freelist, seen)
	if err != nil {
		return err
	}
	b, err := f.Content(p)
	if err != nil {
		return err
	}
	o := binary.NativeEndian
	ids, count := b[HeadSize:], uint64(p.Count)
	if p.Count == 0xFFFF { // the count does not fit in 16 bits
		count, ids = o.Uint64(ids), ids[8:]
	}
	if p.Flags != free || count > uint64(len(ids)/8) {
		return fmt.Errorf("%w: the list of free pages: flags %x, %d pages", faults.ErrDamaged, p.Flags, count)
	}
	for i := range count {
		id := o.Uint64(ids[8*i:])
		if id < 2 || id >= f.pages || seen.has(id) {
			return fmt.Errorf("%w: page %d is in use and called free", faults.ErrDamaged, id)
		}
		seen.add(id)
	}
	return nil
}
