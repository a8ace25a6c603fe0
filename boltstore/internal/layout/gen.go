package layout

import (
	"bytes"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// Gen is the buckets of one generation, valid within its transaction. A field is nil
// if its bucket does not exist.
type Gen struct {
	Bucket  *bolt.Bucket
	of      Tree
	n       uint64
	Items   *Items
	Indices *Indices
}

func (t Tree) gen(n uint64, b, items, index *bolt.Bucket) Gen {
	g := Gen{Bucket: b, of: t, n: n}
	if items != nil {
		g.Items = SealItems(t.Seal, t.ID, n)
		g.Items.Bucket, g.Items.late = items, t.Late
	}
	if index != nil {
		g.Indices = &Indices{index, t.Late}
	}
	return g
}

// Gen returns a generation. All its fields are nil if it does not exist.
func (t Tree) Gen(n uint64) Gen {
	gens := t.Root.Bucket(BucketGen)
	if gens == nil {
		return Gen{}
	}
	b := gens.Bucket(U64(n))
	if b == nil {
		return Gen{}
	}
	return t.gen(n, b, b.Bucket(BucketItems), b.Bucket(BucketIndex))
}

// CreateGen returns a generation, and makes its buckets if there are none.
func (t Tree) CreateGen(n uint64) (Gen, error) {
	gens, err := Create(t.Root, BucketGen)
	if err != nil {
		return Gen{}, err
	}
	b, err := Create(gens, U64(n))
	if err != nil {
		return Gen{}, err
	}
	items, err := Create(b, BucketItems)
	if err != nil {
		return Gen{}, err
	}
	indices, err := Create(b, BucketIndex)
	return t.gen(n, b, items, indices), err
}

// DropGensExcept removes all other generations: the stage of a relist that did not end,
// or the generation that a relist replaced.
func (t Tree) DropGensExcept(keep ...uint64) error {
	gens := t.Root.Bucket(BucketGen)
	if gens == nil {
		return nil
	}
	var drop [][]byte
	err := gens.ForEachBucket(func(k []byte) error {
		if !slices.ContainsFunc(keep, func(n uint64) bool { return bytes.Equal(k, U64(n)) }) {
			drop = append(drop, bytes.Clone(k))
		}
		return nil
	})
	for _, k := range drop {
		if err == nil {
			err = Drop(gens, k)
		}
	}
	return err
}

// SealNotes returns the box of notes without a bucket, which can only seal.
func SealNotes(s *seal.Sealer, id string, gen uint64) *Box {
	return SealBox(s, id, string(BucketNotes), string(U64(gen)))
}

// Notes returns the notes of objects that are unstored or unindexed, or nil if there are
// none.
func (g Gen) Notes() *Box {
	if g.Bucket == nil {
		return nil
	}
	b := g.Bucket.Bucket(BucketNotes)
	if b == nil {
		return nil
	}
	bx := SealNotes(g.of.Seal, g.of.ID, g.n)
	bx.Bucket = b
	return bx
}

// CreateNotes returns the notes, and makes their bucket if there is none.
func (g Gen) CreateNotes() (*Box, error) {
	_, err := Create(g.Bucket, BucketNotes)
	return g.Notes(), err
}
