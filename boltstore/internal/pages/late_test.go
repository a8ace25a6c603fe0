package pages

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// inner says that the bucket of written's keys is flat.
func inner(path []string) bool { return len(path) == 2 }

// lateOf checks the file at path late, and returns it with the root page of written's keys.
func lateOf(t *testing.T, path string) (*Late, uint64) {
	t.Helper()
	l, err := CheckLate(path, inner, inner)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if same, err := l.In(f); !same || err != nil {
		t.Fatal(same, err)
	}
	b := l.f.Top()
	for _, name := range []string{"outer", "inner"} {
		if b, err = l.f.Find(b, []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	return l, b.Root
}

func key(i int) []byte { return fmt.Appendf(nil, "key%06d", i) }

// leafOf is the page that has a key.
func leafOf(t *testing.T, l *Late, root uint64, key []byte) uint64 {
	t.Helper()
	found := uint64(0)
	for id := root; found == 0; {
		p, err := l.f.Head(id)
		if err != nil {
			t.Fatal(err)
		}
		if p.Flags == Leaf {
			found = id
			break
		}
		b, err := l.f.Content(p)
		if err != nil {
			t.Fatal(err)
		}
		o := binary.NativeEndian
		for i := range p.Count {
			e := b[HeadSize+16*i:]
			if i == 0 || string(e[o.Uint32(e):][:o.Uint32(e[4:])]) <= string(key) {
				id = o.Uint64(e[8:])
			}
		}
	}
	return found
}

// swap swaps two pages of the file at path, which keep their ids.
func swap(t *testing.T, path string, a, b uint64) {
	t.Helper()
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(os.Getpagesize())
	pa, pb := all[a*size:][:size], all[b*size:][:size]
	was := string(pa)
	copy(pa[8:], pb[8:])
	copy(pb[8:], was[8:])
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestLate: the check leaves the leaf pages. Damage in one is an error of the keys that
// are looked for in it, and of the whole bucket, and of no other key.
func TestLate(t *testing.T) {
	path := written(t, 600, 100)
	l, root := lateOf(t, path)
	if err := l.Rest(); err != nil {
		t.Fatal("a sound file: ", err)
	}
	swap(t, path, leafOf(t, l, root, key(100)), leafOf(t, l, root, key(400)))
	if _, err := Check(path, inner); !errors.Is(err, faults.ErrDamaged) {
		t.Fatalf("the damage is none: %v", err)
	}
	l, root = lateOf(t, path)
	for _, i := range []int{0, 200, 599, 1000} {
		if err := l.Path(root, key(i)); err != nil {
			t.Errorf("key %d: %v", i, err)
		}
	}
	if err := l.Path(root, nil); err != nil {
		t.Error("before all keys: ", err)
	}
	for range 2 {
		for _, i := range []int{100, 400} {
			if err := l.Path(root, key(i)); !errors.Is(err, faults.ErrDamaged) {
				t.Errorf("key %d, in a page that is elsewhere: %v", i, err)
			}
		}
	}
	if err := l.Whole(root + 1); err != nil {
		t.Error("a page that is no root: ", err)
	}
	for range 2 {
		if err := l.Whole(root); !errors.Is(err, faults.ErrDamaged) {
			t.Errorf("the whole bucket: %v", err)
		}
	}
	if err := l.Path(root, key(200)); err != nil {
		t.Error("a sound key after the whole bucket: ", err)
	}
	if err := l.Rest(); !errors.Is(err, faults.ErrDamaged) {
		t.Errorf("the rest: %v", err)
	}
}

// TestLateUsedTwice: a branch page leads to a leaf page of another bucket, with the same
// first key.
func TestLateUsedTwice(t *testing.T) {
	path := written(t, 600, 100)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		other, err := tx.CreateBucket([]byte("another"))
		for i := 0; i < 600 && err == nil; i++ {
			err = other.Put(key(i), make([]byte, 100))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	l, root := lateOf(t, path)
	other, err := l.f.Find(l.f.Top(), []byte("another"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := uint64(os.Getpagesize())
	o := binary.NativeEndian
	o.PutUint64(all[root*size+HeadSize+8:], leafOf(t, l, other.Root, key(0)))
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	l, root = lateOf(t, path)
	for range 2 {
		if err := l.Path(root, key(0)); !errors.Is(err, faults.ErrDamaged) {
			t.Errorf("another bucket's page: %v", err)
		}
	}
	if err := l.Path(root, key(599)); err != nil {
		t.Error(err)
	}
}

// element is where element i of branch page id begins in the file, and where its key is.
func element(all []byte, id uint64, i int) (e, key []byte) {
	o := binary.NativeEndian
	e = all[id*uint64(os.Getpagesize())+HeadSize+16*uint64(i):]
	return e, e[o.Uint32(e):][:o.Uint32(e[4:])]
}

// TestLateUsedTwiceWithin: two branch pages of a bucket lead to the same leaf page. The
// second visit to it is an error, as in [Check].
func TestLateUsedTwiceWithin(t *testing.T) {
	path := written(t, 40_000, 100)
	l, root := lateOf(t, path)
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	o := binary.NativeEndian
	e, _ := element(all, root, 0)
	one := o.Uint64(e[8:])
	e, _ = element(all, root, 1)
	other := o.Uint64(e[8:])
	p, err := l.f.Head(one)
	if err != nil || p.Flags != Branch {
		t.Fatal(p, err)
	}
	from, key := element(all, other, 5)
	last, was := element(all, one, p.Count-1)
	o.PutUint64(last[8:], o.Uint64(from[8:]))
	copy(was, key)
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(path, inner); !errors.Is(err, faults.ErrDamaged) {
		t.Fatalf("the damage is none: %v", err)
	}
	l, root = lateOf(t, path)
	if err := l.Path(root, key); err != nil {
		t.Error("the leaf page where it belongs: ", err)
	}
	if err := l.Whole(root); !errors.Is(err, faults.ErrDamaged) {
		t.Errorf("a page that is used twice: %v", err)
	}
}

// TestLateUsedByTwo: a branch page leads to a leaf page of another bucket that was left,
// with the same first key. Whichever is verified second is damaged.
func TestLateUsedByTwo(t *testing.T) {
	path := written(t, 600, 100)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		other, err := tx.Bucket([]byte("outer")).CreateBucket([]byte("other"))
		for i := 0; i < 600 && err == nil; i++ {
			err = other.Put(key(i), make([]byte, 100))
		}
		return err
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	l, root := lateOf(t, path)
	outer, err := l.f.Find(l.f.Top(), []byte("outer"))
	if err != nil {
		t.Fatal(err)
	}
	other, err := l.f.Find(outer, []byte("other"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	e, _ := element(all, root, 0)
	binary.NativeEndian.PutUint64(e[8:], leafOf(t, l, other.Root, key(0)))
	if err := os.WriteFile(path, all, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, order := range [][2]uint64{{root, other.Root}, {other.Root, root}} {
		l, _ = lateOf(t, path)
		if err := l.Whole(order[0]); err != nil {
			t.Error("the first: ", err)
		}
		if err := l.Whole(order[1]); !errors.Is(err, faults.ErrDamaged) {
			t.Errorf("the second: %v", err)
		}
	}
}

// TestLateLeavesOnly: a flat bucket that is not to be left is verified at once.
func TestLateLeavesOnly(t *testing.T) {
	path := written(t, 600, 100)
	l, root := lateOf(t, path)
	swap(t, path, leafOf(t, l, root, key(100)), leafOf(t, l, root, key(400)))
	if _, err := CheckLate(path, inner, func([]string) bool { return false }); !errors.Is(err, faults.ErrDamaged) {
		t.Errorf("pages that nobody verifies later: %v", err)
	}
}

// counted counts the reads.
type counted struct {
	io.ReaderAt
	n atomic.Int64
}

func (c *counted) ReadAt(b []byte, at int64) (int, error) {
	c.n.Add(1)
	return c.ReaderAt.ReadAt(b, at)
}

// TestLateReads: what is looked up by key in a large file costs few reads. Many keys cost
// no more than the whole bucket and some keys.
func TestLateReads(t *testing.T) {
	path := written(t, 20_000, 100)
	f, done, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	r := &counted{ReaderAt: f.r}
	f.r = r
	if _, err := f.scan(inner, nil); err != nil {
		t.Fatal(err)
	}
	all := r.n.Swap(0)
	l, err := f.checkLate(inner, inner)
	if err != nil {
		t.Fatal(err)
	}
	if n := r.n.Swap(0); n > all/10 {
		t.Errorf("%d reads of %d when the file is opened", n, all)
	}
	_, root := lateOf(t, path)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for j := range 500 {
				if err := l.Path(root, key(40*j+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := r.n.Load(); n > all+10*mostPaths {
		t.Errorf("%d reads for 10,000 keys, and %d for the whole file", n, all)
	}
}

// TestLateIn: a file that was written since the check is not the one that was checked.
func TestLateIn(t *testing.T) {
	path := written(t, 600, 100)
	l, _ := lateOf(t, path)
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("outer")).Put([]byte("k"), []byte("v")) })
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if same, err := l.In(f); same || err != nil {
		t.Error(same, err)
	}
}
