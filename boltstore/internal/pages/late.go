package pages

import (
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
	seen    pageSet // in use by other buckets, or free, or verified since
	done    pageSet // leaf pages verified since
	buckets map[uint64]*lateBucket
}

// lateBucket is a bucket with leaf pages that were left, by its root page.
type lateBucket struct {
	paths int  // verified
	whole bool // verified
	err   error
}

// mostPaths is how many keys are looked up in a bucket before all of it is verified. A
// page costs as much as the path of a quarter of a key.
const mostPaths = 100

// CheckLate is [Check] for a file that will only be read. It leaves the leaf pages of flat
// buckets, which are nearly all pages of a large file.
func CheckLate(path string, flat func(path []string) bool) (*Late, error) {
	f, done, err := open(path)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.checkLate(flat)
}

func (f *File) checkLate(flat func(path []string) bool) (l *Late, err error) {
	l = &Late{f: f, done: f.newSet(), buckets: map[uint64]*lateBucket{}}
	l.seen, err = f.scan(flat, l)
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
	if b == nil {
		return nil
	}
	if b.paths++; b.paths > mostPaths {
		l.verify(root, b)
	}
	if b.whole && b.err == nil {
		return nil
	}
	return l.walk(root, func(c []child) (from, to int) { return leads(c, key) })
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
	if !b.whole {
		b.whole, b.err = true, l.walk(root, nil)
	}
}

// walk verifies the pages of a bucket, and of each branch page the children that which
// returns.
func (l *Late) walk(root uint64, which func(children []child) (from, to int)) error {
	w := walker{f: l.f, seen: l.f.newSet(), data: true, late: l, which: which}
	w.tree(root, 0)
	return w.errs.Err()
}
