package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// layouts are ways to keep a large value in bbolt, which never splits a page of four
// values or fewer.
var layouts = []layout{
	{name: "in the tree", put: (*bolt.Bucket).Put, get: (*bolt.Bucket).Get},
	{name: "a bucket each", put: func(b *bolt.Bucket, k, v []byte) error {
		sub, err := b.CreateBucketIfNotExists(k)
		if err != nil {
			return err
		}
		return sub.Put(valueKey, v)
	}, get: func(b *bolt.Bucket, k []byte) []byte { return b.Bucket(k).Get(valueKey) }},
	{name: "pieces of 1,800 bytes", put: func(b *bolt.Bucket, k, v []byte) error {
		for i := byte(0); len(v) > 0; i++ {
			n := min(len(v), 1800)
			if err := b.Put(append(k[:len(k):len(k)], i), v[:n]); err != nil {
				return err
			}
			v = v[n:]
		}
		return nil
	}, get: func(b *bolt.Bucket, k []byte) (v []byte) {
		c := b.Cursor()
		for ck, piece := c.Seek(k); len(ck) == len(k)+1 && string(ck[:len(k)]) == string(k); ck, piece = c.Next() {
			v = append(v, piece...)
		}
		return v
	}},
	{name: "an empty key beside each", put: func(b *bolt.Bucket, k, v []byte) error {
		if err := b.Put(k, v); err != nil {
			return err
		}
		return b.Put(append(k[:len(k):len(k)], 0), nil)
	}, get: (*bolt.Bucket).Get},
}

var valueKey = []byte{0}

// layout keeps values. flush, if it is set, ends a transaction.
type layout struct {
	name  string
	put   func(b *bolt.Bucket, k, v []byte) error
	get   func(b *bolt.Bucket, k []byte) []byte
	flush func(b *bolt.Bucket) error
}

// besideTree has the values of a transaction in one block, a bucket of its own, and in the
// tree only where each lies. When half of the blocks' bytes are out of date, the values
// left in the emptiest block move to the next one.
type besideTree struct {
	next   uint64
	block  []byte
	names  map[uint64]map[string]bool // of the values in each block that are not out of date
	sizes  map[uint64]int
	all    int // bytes of the blocks
	values int // of them, not out of date
	length int
}

const besideName = "beside the tree"

func newBesideTree(length int) layout {
	l := &besideTree{next: 1, names: map[uint64]map[string]bool{1: {}}, sizes: map[uint64]int{}, length: length}
	return layout{besideName, l.put, l.get, l.flush}
}

func (l *besideTree) put(b *bolt.Bucket, k, v []byte) error {
	if old := b.Get(k); old != nil {
		delete(l.names[binary.BigEndian.Uint64(old)], string(k))
		l.values -= l.length
	}
	at := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, l.next), uint32(len(l.block)))
	l.block = append(l.block, v...)
	l.names[l.next][string(k)] = true
	l.values += l.length
	return b.Put(k, at)
}

// blocks is the name of the blocks' bucket, behind all keys.
var blocks = []byte{0xff}

func (l *besideTree) get(b *bolt.Bucket, k []byte) []byte {
	at := b.Get(k)
	from := binary.BigEndian.Uint32(at[8:])
	return b.Bucket(blocks).Bucket(at[:8]).Get(valueKey)[from:][:l.length]
}

func (l *besideTree) flush(b *bolt.Bucket) error {
	all, err := b.CreateBucketIfNotExists(blocks)
	if err != nil {
		return err
	}
	for l.all+len(l.block) > 2*l.values {
		emptiest := uint64(0)
		for id := range l.sizes {
			if emptiest == 0 || len(l.names[id])*l.sizes[emptiest] < len(l.names[emptiest])*l.sizes[id] {
				emptiest = id
			}
		}
		for k := range l.names[emptiest] {
			if err := l.put(b, []byte(k), bytes.Clone(l.get(b, []byte(k)))); err != nil {
				return err
			}
		}
		l.all -= l.sizes[emptiest]
		delete(l.sizes, emptiest)
		delete(l.names, emptiest)
		if err := all.DeleteBucket(binary.BigEndian.AppendUint64(nil, emptiest)); err != nil {
			return err
		}
	}
	sub, err := all.CreateBucket(binary.BigEndian.AppendUint64(nil, l.next))
	if err != nil {
		return err
	}
	l.sizes[l.next] = len(l.block)
	l.all += len(l.block)
	err = sub.Put(valueKey, l.block)
	l.next++
	l.block, l.names[l.next] = nil, map[string]bool{}
	return err
}

// BenchmarkLayouts changes 100 of 8,000 values in each transaction, anywhere, and reads
// them. Beside the time of a transaction it reports the bytes written for a change, the
// file's size, and the time to find one value. Names are as long as a pod's, and values
// as large as pods, as they are and packed.
func BenchmarkLayouts(b *testing.B) {
	const n, each = 8000, 100
	for _, size := range []int{1800, 5300} {
		for _, l := range append(slices.Clone(layouts), layout{name: besideName}) {
			b.Run(fmt.Sprintf("%d bytes/%s", size, l.name), func(b *testing.B) {
				if l.name == besideName {
					l = newBesideTree(size)
				}
				db, err := bolt.Open(filepath.Join(b.TempDir(), "f.db"), 0o600,
					&bolt.Options{NoSync: true, FreelistType: bolt.FreelistMapType})
				if err != nil {
					b.Fatal(err)
				}
				defer db.Close()
				r := rand.New(rand.NewPCG(1, 1))
				key := func(i int) []byte {
					return fmt.Appendf(nil, "namespace-%02d/some-deployment-%05d-7d4b9c%05d", i/100, i, i)
				}
				value := func() []byte {
					v := make([]byte, size)
					binary.NativeEndian.PutUint64(v, r.Uint64())
					return v
				}
				update := func(fn func(items *bolt.Bucket) error) {
					if err := db.Update(func(tx *bolt.Tx) error {
						items, err := tx.CreateBucketIfNotExists([]byte("items"))
						if err != nil {
							return err
						}
						if err := fn(items); err != nil || l.flush == nil {
							return err
						}
						return l.flush(items)
					}); err != nil {
						b.Fatal(err)
					}
				}
				for from := 0; from < n; from += 200 {
					update(func(items *bolt.Bucket) error {
						items.FillPercent = 0.9
						for i := range 200 {
							if err := l.put(items, key(from+i), value()); err != nil {
								return err
							}
						}
						return nil
					})
				}
				wrote := written()
				for b.Loop() {
					update(func(items *bolt.Bucket) error {
						for range each {
							if err := l.put(items, key(r.IntN(n)), value()); err != nil {
								return err
							}
						}
						return nil
					})
				}
				b.ReportMetric(float64(written()-wrote)/float64(b.N*each), "written/change")
				if err := db.View(func(tx *bolt.Tx) error {
					b.ReportMetric(float64(tx.Size()), "file-bytes")
					items := tx.Bucket([]byte("items"))
					began := time.Now()
					for i := range n {
						if v := l.get(items, key(i)); len(v) != size {
							return fmt.Errorf("%d bytes", len(v))
						}
					}
					b.ReportMetric(float64(time.Since(began).Nanoseconds())/n, "ns/get")
					return nil
				}); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
