package pages

import (
	"fmt"
	"os"
	"sync"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// Late has the leaf pages that [CheckLate] has left for later. Whoever reads a bucket
// first calls Path or Whole for it. A nil Late has nothing left. It is safe for concurrent
// use.
type Late struct {
	mu      sync.Mutex
	f       *File
	seen    pageSet // in use, or free; not the leaf pages that nobody has verified yet
	buckets map[uint64]*lateBucket
}

// lateBucket is a bucket with leaf pages that were left, by its root page.
type lateBucket struct {
	done  pageSet         // leaf pages verified, nil if there are none
	keys  map[string]bool // whose paths are sound
	paths int             // verified
	whole bool            // verified
	err   error
}

// mostPaths is how many keys are looked up in a bucket before all of it is verified. A
// page costs as much as the path of a quarter of a key.
const mostPaths = 100

// CheckLate is [Check] for a file that will only be read. It leaves the leaf pages of the
// flat buckets for which leave holds.
func CheckLate(path string, flat, leave func(path []string) bool) (*Late, error) {
	f, done, err := open(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.checkLate(flat, leave)
}

func (f *File) checkLate(flat, leave func(path []string) bool) (l *Late, err error) {
	l = &Late{f: f, buckets: map[uint64]*lateBucket{}}
	l.seen, err = f.scan(flat, func(path []string, root uint64) func() {
		if !flat(path) || !leave(path) {
			return nil
		}
		return func() { l.buckets[root] = &lateBucket{keys: map[string]bool{}} }
	})
	return l, err
}

// In sets the open file that the pages are read from. It says whether the newest
// transaction of f is the one that was checked.
func (l *Late) In(f *os.File) (same bool, err error) {
	now, err := FileOf(f)
	if err != nil {
		return false, err
	}
	same = now.meta.sum == l.f.meta.sum
	l.f = now
	return same, nil
}

// Path verifies the pages that lead to key, in the bucket with that root page.
func (l *Late) Path(root uint64, key []byte) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[root]
	if b == nil || b.keys[string(key)] {
		return nil
	}
	if b.paths++; b.paths > mostPaths {
		l.verify(root, b)
	}
	if b.whole && b.err == nil {
		return nil
	}
	err := l.walk(root, b, func(c []child) (from, to int) { return leads(c, key) })
	if err == nil && len(b.keys) < mostPaths {
		b.keys[string(key)] = true
	}
	return err
}

// Whole verifies all pages of the bucket with that root page.
func (l *Late) Whole(root uint64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buckets[root]
	if b == nil {
		return nil
	}
	l.verify(root, b)
	return b.err
}

// Rest verifies all that is left.
func (l *Late) Rest() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var errs faults.List
	for root, b := range l.buckets {
		l.verify(root, b)
		errs.Add(b.err)
	}
	return errs.Err()
}

func (l *Late) verify(root uint64, b *lateBucket) {
	if b.whole {
		return
	}
	b.whole = true
	if b.err = l.walk(root, b, nil); b.err == nil {
		b.done = nil // it is not walked again
	}
}

// walk verifies the pages of a bucket, and of each branch page the children that which
// returns.
func (l *Late) walk(root uint64, b *lateBucket, which func(children []child) (from, to int)) error {
	if b.done == nil {
		b.done = l.f.newSet()
	}
	w := walker{f: l.f, seen: l.f.newSet(), data: true, which: which}
	w.late = func(p Page) error { return l.first(p, b) }
	w.tree(root, 0)
	return w.errs.Err()
}

// first verifies that no other bucket has the page p of b, and that it is not free. Those
// that are no leaf pages have been verified before.
func (l *Late) first(p Page, b *lateBucket) (err error) {
	switch {
	case p.Flags != Leaf && !l.seen.has(p.id):
		err = fmt.Errorf("%w: page %d is where leaf pages are, and has flags %x", faults.ErrDamaged, p.id, p.Flags)
	case p.Flags == Leaf && !b.done.has(p.id):
		if _, err = l.f.come(p.id, p, nil, l.seen); err == nil {
			b.done.add(p.id)
		}
	}
	return err
}
