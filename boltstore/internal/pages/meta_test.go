package pages

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// forgeMeta writes a meta page of the latest transaction, with the given number of
// pages, after the head of the page at b.
func forgeMeta(b []byte, pageSize uint32, pages uint64) {
	o := binary.NativeEndian
	m := b[pageHead:][:metaBytes]
	o.PutUint32(m, magic)
	o.PutUint32(m[4:], 2)
	o.PutUint32(m[8:], pageSize)
	o.PutUint64(m[16:], 3)
	o.PutUint64(m[32:], ^uint64(0))
	o.PutUint64(m[40:], pages)
	o.PutUint64(m[48:], 1<<60)
	h := fnv.New64a()
	h.Write(m[:56])
	o.PutUint64(m[56:], h.Sum64())
}

// TestForgedMeta: bytes that look like a meta page, at the place for another page size,
// are not taken for one. An object's content can be made to look so.
func TestForgedMeta(t *testing.T) {
	path := written(t, 600, 100)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	right := uint32(os.Getpagesize())
	for size := 2 * right; size <= 65536; size *= 2 {
		b := append([]byte(nil), whole...)
		forgeMeta(b[size:], size, 4)
		f := filepath.Join(t.TempDir(), "forged.db")
		if err := os.WriteFile(f, b, 0o600); err != nil {
			t.Fatal(err)
		}
		pages, done, err := Open(f)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if uint32(pages.PageSize()) != right {
			t.Errorf("it is read with pages of %d bytes", pages.PageSize())
		}
		if size == 2*right { // the first meta page is lost: the second one is of the right size
			clear(b[:right])
			if err := os.WriteFile(f, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if pages, done, err = Open(f); err != nil {
				t.Fatal(err)
			}
			done()
			if uint32(pages.PageSize()) != right {
				t.Errorf("it is read with pages of %d bytes", pages.PageSize())
			}
		}
	}
}

// TestForgedPageCount: a meta page with more pages than the file has costs no memory
// for them.
func TestForgedPageCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "test.db")
	b := make([]byte, 4*os.Getpagesize())
	forgeMeta(b, uint32(os.Getpagesize()), 1<<31)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Check(path, noData); !errors.Is(err, faults.ErrDamaged) {
		t.Error(err)
	}
	f, done, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if n := len(f.newSet()); n > 10 {
		t.Errorf("a set of pages has %d words", n)
	}
}

func noData([]string) bool { return false }

// written is a bbolt file of n items of that size, and a bucket in a bucket.
func written(t testing.TB, n, size int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		outer, err := tx.CreateBucket([]byte("outer"))
		if err != nil {
			return err
		}
		inner, err := outer.CreateBucket([]byte("inner"))
		for i := 0; i < n && err == nil; i++ {
			err = inner.Put(fmt.Appendf(nil, "key%06d", i), make([]byte, size))
		}
		return err
	})
	if err = errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// FuzzPages takes any bytes for the pages after the meta pages of a bbolt file.
// Checking and reading them ends.
func FuzzPages(f *testing.F) {
	path := written(f, 20, 1)
	b, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	m, err := newestMeta(bytes.NewReader(b))
	if err != nil {
		f.Fatal(err)
	}
	used := b[2*m.pageSize : uint64(m.pages)*uint64(m.pageSize)]
	f.Add(used, m.root, m.freelist)
	f.Add([]byte{}, uint64(2), ^uint64(0))
	f.Add(nested(40), uint64(2), ^uint64(0))
	f.Fuzz(func(t *testing.T, pages []byte, root, freelist uint64) {
		if len(pages) > 1<<18 {
			return
		}
		all := append(make([]byte, 2*m.pageSize), pages...)
		meta := *m
		meta.root, meta.freelist = root, freelist
		meta.pages = uint64(len(all)) / uint64(meta.pageSize)
		pf := newFile(bytes.NewReader(all), &meta, int64(len(all)))
		_, _ = pf.scan(noData, nil) // that it returns is the test
		inBucket := func(path []string) bool { return len(path) > 0 }
		l, _ := pf.checkLate(inBucket, inBucket)
		for root := range l.buckets {
			_ = l.Path(root, []byte("key000100"))
			_ = l.Whole(root)
		}
		_ = pf.Each(pf.Top(), func(k, v []byte, sub *Bucket) {
			if sub != nil {
				_ = pf.Each(*sub, func([]byte, []byte, *Bucket) {})
			}
		})
	})
}

// nested returns a leaf page whose two elements are the same inline bucket, which
// contains the same again: 2^depth buckets.
func nested(depth int) []byte {
	o := binary.NativeEndian
	var inner []byte
	for range depth {
		b := make([]byte, HeadSize+2*16+16)
		o.PutUint16(b[8:], Leaf)
		o.PutUint16(b[10:], 2)
		for i := range 2 {
			e := b[HeadSize+16*i:]
			o.PutUint32(e, leafBucket)
			o.PutUint32(e[4:], uint32(2*16-16*i))
			o.PutUint32(e[12:], uint32(16+len(inner)))
		}
		if inner == nil {
			o.PutUint16(b[10:], 0)
		}
		inner = append(b, inner...)
	}
	page := append(inner, make([]byte, 4096-len(inner)%4096)...)
	o.PutUint64(page, 2)
	return page
}
