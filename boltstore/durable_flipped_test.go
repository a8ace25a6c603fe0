package boltstore

import (
	"bytes"
	"fmt"
	"os"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestHandlersOfFlippedBits: one bit has flipped in the head of a page, or in its first
// element, of a closed file. Each durable handler goes on where it was, or starts over. It
// does not count as new: a page that says that it has fewer elements, or that a bucket in
// it is none, has lost something.
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

	size, every := os.Getpagesize(), 1
	if testing.Short() {
		every = 7
	}
	opened := 0
	for at := 2 * size; at < len(file); at += size {
		if bytes.Count(file[at:at+size], []byte{0}) == size {
			continue
		}
		for bit := 8 * 8; bit < 20*8; bit += every { // flags, number of elements, length, the element's flags
			now := bytes.Clone(file)
			now[at+bit/8] ^= 1 << (bit % 8)
			path := testPath(t)
			must(t, os.WriteFile(path, now, 0o600))
			db := openTest(t, path, o)
			for _, src := range sources {
				_, err := claimTest(t, db, Claim{Source: src}).ClaimHandler("d", &testPosition{}, func(pos Position, _ uint64, known bool) {
					if !pos.Reset && (!known || pos.Replaying) {
						t.Errorf("page %d, byte %d, bit %d: %s: known %t, %+v", at/size, bit/8, bit%8, src.Namespace, known, pos)
					}
				})
				must(t, err)
			}
			must(t, db.Close())
			opened++
		}
	}
	t.Log(opened, "files")
}
