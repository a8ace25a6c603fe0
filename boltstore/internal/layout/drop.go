package layout

import (
	"bytes"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
)

// ErrCircle means that damage has put a bucket into itself.
var ErrCircle = fmt.Errorf("%w: a bucket is in itself", faults.ErrDamaged)

// Drop deletes the bucket called name and everything in it. If a bucket is in itself,
// bbolt's DeleteBucket would recurse without end; Drop returns [ErrCircle].
func Drop(in *bolt.Bucket, name []byte) error {
	if b := in.Bucket(name); b != nil {
		if err := isTree(b, map[uint64]bool{}); err != nil {
			return err
		}
	}
	return in.DeleteBucket(name)
}

// isTree verifies that no two buckets in b have the same root page, and that the keys of
// each are in order.
func isTree(b *bolt.Bucket, roots map[uint64]bool) error {
	if root := uint64(b.RootPage()); root != 0 { // otherwise it is inline, without buckets
		if roots[root] {
			return ErrCircle
		}
		roots[root] = true
	}
	var last []byte
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		if last != nil && bytes.Compare(last, k) >= 0 {
			return ErrCircle
		}
		last = k
		if v != nil {
			continue
		}
		if sub := b.Bucket(k); sub != nil {
			if err := isTree(sub, roots); err != nil {
				return err
			}
		}
	}
	return nil
}
