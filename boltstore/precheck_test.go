package boltstore

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"testing"
)

// forgeMeta puts a meta page of the latest transaction, with the given number
// of pages, behind the head of the page at b, for pages of that size.
func forgeMeta(b []byte, pageSize uint32, pages uint64) {
	o := binary.NativeEndian
	m := b[boltPageHead:][:boltMetaBytes]
	o.PutUint32(m, boltMagic)
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

// TestForgedMeta: what looks like a meta page where pages of another size would
// have theirs, as an object's content can be made to, is none.
func TestForgedMeta(t *testing.T) {
	path := testPath(t)
	stored(t, path, 600, 1, Options{})
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
		pages, done, err := openPages(f)
		if err != nil {
			t.Fatal(err)
		}
		done()
		if pages.meta.pageSize != right {
			t.Errorf("it is read with pages of %d bytes", pages.meta.pageSize)
		}
		if size == 2*right { // the first meta page is lost: the second one is of the right size
			clear(b[:right])
			if err := os.WriteFile(f, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if pages, done, err = openPages(f); err != nil {
				t.Fatal(err)
			}
			done()
			if pages.meta.pageSize != right {
				t.Errorf("it is read with pages of %d bytes", pages.meta.pageSize)
			}
		}
	}
}

// TestForgedPageCount: a meta page that says that there are more pages than the
// file has costs no memory for them.
func TestForgedPageCount(t *testing.T) {
	path := testPath(t)
	b := make([]byte, 4*os.Getpagesize())
	forgeMeta(b, uint32(os.Getpagesize()), 1<<31)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := precheck(path); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	f, done, err := openPages(path)
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	if n := len(f.newSet()); n > 10 {
		t.Errorf("a set of pages has %d words", n)
	}
}
