package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

// layouts are ways to keep a large value in bbolt, which never splits a page of four
// values or fewer.
var layouts = []struct {
	name string
	put  func(b *bolt.Bucket, k, v []byte) error
	get  func(b *bolt.Bucket, k []byte) []byte
}{
	{"in the tree", (*bolt.Bucket).Put, (*bolt.Bucket).Get},
	{"a bucket each", func(b *bolt.Bucket, k, v []byte) error {
		sub, err := b.CreateBucketIfNotExists(k)
		if err != nil {
			return err
		}
		return sub.Put(valueKey, v)
	}, func(b *bolt.Bucket, k []byte) []byte { return b.Bucket(k).Get(valueKey) }},
	{"pieces of 1,800 bytes", func(b *bolt.Bucket, k, v []byte) error {
		for i := byte(0); len(v) > 0; i++ {
			n := min(len(v), 1800)
			if err := b.Put(append(k[:len(k):len(k)], i), v[:n]); err != nil {
				return err
			}
			v = v[n:]
		}
		return nil
	}, func(b *bolt.Bucket, k []byte) (v []byte) {
		c := b.Cursor()
		for ck, piece := c.Seek(k); len(ck) == len(k)+1 && string(ck[:len(k)]) == string(k); ck, piece = c.Next() {
			v = append(v, piece...)
		}
		return v
	}},
	{"an empty key beside each", func(b *bolt.Bucket, k, v []byte) error {
		if err := b.Put(k, v); err != nil {
			return err
		}
		return b.Put(append(k[:len(k):len(k)], 0), nil)
	}, (*bolt.Bucket).Get},
}

var valueKey = []byte{0}

// BenchmarkLayouts changes 100 of 8,000 values in each transaction, anywhere, and reads
// them. Beside the time of a transaction it reports the bytes written for a change, the
// file's size, and the time to find one value. Names are as long as a pod's, and values
// as large as pods, as they are and packed.
func BenchmarkLayouts(b *testing.B) {
	const n, each = 8000, 100
	for _, size := range []int{1800, 5300} {
		for _, l := range layouts {
			b.Run(fmt.Sprintf("%d bytes/%s", size, l.name), func(b *testing.B) {
				db, err := bolt.Open(filepath.Join(b.TempDir(), "f.db"), 0o600, &bolt.Options{NoSync: true, FreelistType: bolt.FreelistMapType})
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
						return fn(items)
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
