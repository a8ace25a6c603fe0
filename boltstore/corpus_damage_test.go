package boltstore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// damage is one way to spoil the file.
type damage struct {
	kind  string
	older bool // it can lead to old pages, which are free now
	do    func(c corpus, r *rand.Rand) []byte
}

func pageOf(b []byte, i int) []byte {
	n := os.Getpagesize()
	return b[i*n : (i+1)*n]
}

func pagesOf(b []byte) int { return len(b) / os.Getpagesize() }

var damages = []damage{
	{"truncated", false, func(c corpus, r *rand.Rand) []byte { return c.after[:r.IntN(len(c.after))] }},
	{"bit flipped", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		return b
	}},
	{"bits flipped", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		for range 2 + r.IntN(30) {
			b[r.IntN(len(b))] ^= 1 << r.IntN(8)
		}
		return b
	}},
	{"page heads flipped", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		for range 1 + r.IntN(3) {
			pageOf(b, r.IntN(pagesOf(b)))[r.IntN(64)] ^= 1 << r.IntN(8)
		}
		return b
	}},
	{"pages swapped", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		i, j := r.IntN(pagesOf(b)), r.IntN(pagesOf(b))
		copy(pageOf(b, i), pageOf(c.after, j))
		copy(pageOf(b, j), pageOf(c.after, i))
		return b
	}},
	{"pages swapped, with their numbers", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		i, j := r.IntN(pagesOf(b)), r.IntN(pagesOf(b))
		copy(pageOf(b, i)[8:], pageOf(c.after, j)[8:])
		copy(pageOf(b, j)[8:], pageOf(c.after, i)[8:])
		return b
	}},
	{"page zeroed", false, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		clear(pageOf(b, r.IntN(pagesOf(b))))
		return b
	}},
	{"page rolled back", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		i := r.IntN(min(pagesOf(b), pagesOf(c.before)))
		copy(pageOf(b, i), pageOf(c.before, i))
		return b
	}},
	{"pages rolled back", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		for range 2 + r.IntN(10) {
			i := r.IntN(min(pagesOf(b), pagesOf(c.before)))
			copy(pageOf(b, i), pageOf(c.before, i))
		}
		return b
	}},
	{"meta pages rolled back", true, func(c corpus, r *rand.Rand) []byte {
		b := bytes.Clone(c.after)
		pages := r.IntN(3) // the first, the second, both
		for i := range 2 {
			if pages == 2 || pages == i {
				copy(pageOf(b, i), pageOf(c.before, i))
			}
		}
		return b
	}},
	{"records swapped", false, func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, swapRecords) }},
	{"record dropped", false, func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, dropRecord) }},
	{"index entry dropped", false, func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, dropEntry) }},
	{"note dropped", false, func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, dropOf(notesIn)) }},
	{"notes swapped", false, func(c corpus, r *rand.Rand) []byte { return rewriteFile(c.after, r, swapOf(notesIn)) }},
}

// noticed are the kinds of damage that must always be reported.
var noticed = []string{"record dropped", "index entry dropped", "note dropped", "notes swapped"}

// rewriteFile changes the file through bbolt, so that only kubewake's own checks can
// notice.
func rewriteFile(file []byte, r *rand.Rand, fn func(src sourceTx, m *sourceMeta, r *rand.Rand) error) []byte {
	f, err := os.CreateTemp("", "corpus")
	if err != nil {
		panic(err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(file)
	if err := errors.Join(err, f.Close()); err != nil {
		panic(err)
	}
	b, err := bolt.Open(f.Name(), 0o600, &bolt.Options{NoSync: true})
	if err != nil {
		panic(err)
	}
	err = b.Update(func(tx *bolt.Tx) error {
		h, err := handleOf(tx)
		if err != nil {
			return err
		}
		src, _ := h.source(tx, configMaps.ID())
		m, err := src.meta()
		if err != nil {
			return err
		}
		return fn(src, m, r)
	})
	if err := errors.Join(err, b.Close()); err != nil {
		panic(err)
	}
	out, err := os.ReadFile(f.Name())
	if err != nil {
		panic(err)
	}
	return out
}

// handleOf can open the sources of a file that may be encrypted.
func handleOf(tx *bolt.Tx) (*handle, error) {
	db := &DB{opts: Options{Keyset: sealtest.Keyset()}}
	var h header
	err := errors.Join(db.converting().readKeyset(), format.Get(tx.Bucket(layout.BucketFile), layout.KeyHeader, &h))
	if err == nil {
		db.h.seal, err = db.converting().unlock(h)
	}
	return &db.h, err
}

func anyRecord(src sourceTx, m *sourceMeta, r *rand.Rand) (k, v []byte) {
	c := src.contents().Items.Bucket.Cursor()
	k, v = c.First()
	for range r.IntN(int(m.Items.Count)) {
		k, v = c.Next()
	}
	return bytes.Clone(k), bytes.Clone(v)
}

func swapRecords(src sourceTx, m *sourceMeta, r *rand.Rand) error {
	items := src.contents().Items.Bucket
	k1, v1 := anyRecord(src, m, r)
	k2, v2 := anyRecord(src, m, r)
	return errors.Join(items.Put(k1, v2), items.Put(k2, v1))
}

func dropRecord(src sourceTx, m *sourceMeta, r *rand.Rand) error {
	k, _ := anyRecord(src, m, r)
	return src.contents().Items.Bucket.Delete(k)
}

func dropEntry(src sourceTx, m *sourceMeta, r *rand.Rand) error {
	b := src.contents().Indices.Open("words").Bucket
	c := b.Cursor()
	k, _ := c.First()
	for range r.IntN(100) {
		k, _ = c.Next()
	}
	return b.Delete(bytes.Clone(k))
}

func notesIn(src sourceTx, m *sourceMeta) *bolt.Bucket { return src.contents().Notes().Bucket }

// anyOf returns a random element of a bucket, but not the one at the key without.
func anyOf(b *bolt.Bucket, r *rand.Rand, without []byte) (k, v []byte) {
	for n := r.IntN(20); k == nil || n > 0 || bytes.Equal(k, without); n-- {
		c := b.Cursor()
		next, data := c.Seek(k)
		if k != nil {
			next, data = c.Next()
		}
		if next == nil {
			next, data = c.First()
		}
		k, v = bytes.Clone(next), bytes.Clone(data)
	}
	return k, v
}

func dropOf(of func(sourceTx, *sourceMeta) *bolt.Bucket) func(sourceTx, *sourceMeta, *rand.Rand) error {
	return func(src sourceTx, m *sourceMeta, r *rand.Rand) error {
		k, _ := anyOf(of(src, m), r, nil)
		return of(src, m).Delete(k)
	}
}

func swapOf(of func(sourceTx, *sourceMeta) *bolt.Bucket) func(sourceTx, *sourceMeta, *rand.Rand) error {
	return func(src sourceTx, m *sourceMeta, r *rand.Rand) error {
		k1, v1 := anyOf(of(src, m), r, nil)
		k2, v2 := anyOf(of(src, m), r, k1)
		return errors.Join(of(src, m).Put(k1, v2), of(src, m).Put(k2, v1))
	}
}
