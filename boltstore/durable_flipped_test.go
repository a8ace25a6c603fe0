package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestHandlersOfFlippedBits: one bit has flipped in the head of a page, or in its first
// element. Each durable handler goes on where it was, or starts over. It does not count as
// new: a page that says that it has fewer elements, or that a bucket in it is none, has
// lost something.
func TestHandlersOfFlippedBits(t *testing.T) {
	o := Options{Logger: new(logr.Discard())}
	path := testPath(t)
	db := openTest(t, path, o)
	var sources []Source
	for i := range 3 {
		src := configMaps
		src.Namespace = fmt.Sprint("ns", i)
		sources = append(sources, src)
		s := claimTest(t, db, Claim{Source: src})
		var objs []runtime.Object
		for n := range 4 {
			objs = append(objs, configMap(src.Namespace, fmt.Sprint("o", n), 10+n, nil))
		}
		relist(t, s, "20", RelistOptions{}, objs, 10)
		h, pos := claimHandler(t, s, "d")
		pos.set(func(p *Position) { p.Replaying = false })
		h.Changed()
	}
	closeTest(t, db)
	file, err := os.ReadFile(path)
	must(t, err)
	t.Run("closed", func(t *testing.T) {
		flipped(t, file, true, func(path string, flip func()) *DB { flip(); return opened(t, path, o) }, sources)
	})
	t.Run("open", func(t *testing.T) {
		flipped(t, file, false, func(path string, flip func()) *DB { db := opened(t, path, o); flip(); return db }, sources)
	})
}

func opened(t *testing.T, path string, o Options) *DB {
	db, err := Open(path, o)
	must(t, err)
	return db
}

// flipped opens copies of the file, in each of which another bit flips, at rest or while
// it is open.
func flipped(t *testing.T, file []byte, atRest bool, open func(path string, flip func()) *DB, sources []Source) {
	size, every := os.Getpagesize(), 1
	if testing.Short() {
		every = 7
	}
	for at := 2 * size; at < len(file); at += size {
		if bytes.Count(file[at:at+size], []byte{0}) == size {
			continue
		}
		for bit := 8 * 8; bit < 20*8; bit += every { // flags, number of elements, length, the element's flags
			if length := bit/8 >= 12 && bit/8 < 16; length && !atRest {
				continue // bbolt believes it, see "What is assumed" in docs/reliability.md
			}
			path := testPath(t)
			must(t, os.WriteFile(path, file, 0o600))
			db := open(path, func() {
				f, err := os.OpenFile(path, os.O_WRONLY, 0)
				must(t, err)
				_, err = f.WriteAt([]byte{file[at+bit/8] ^ 1<<(bit%8)}, int64(at+bit/8))
				must(t, errors.Join(err, f.Close()))
			})
			for _, src := range sources {
				_, err := claimTest(t, db, Claim{Source: src}).ClaimHandler("d", &testPosition{}, func(pos Position, _ uint64, known bool) {
					if !pos.Reset && (!known || pos.Replaying) {
						t.Errorf("page %d, byte %d, bit %d: %s: known %t, %+v", at/size, bit/8, bit%8, src.Namespace, known, pos)
					}
				})
				must(t, err)
			}
			if err := db.Close(); err != nil && !errors.Is(err, ErrDamaged) {
				t.Error(err)
			}
		}
	}
}
