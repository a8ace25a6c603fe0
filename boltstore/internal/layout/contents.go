package layout

import (
	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// Contents are the buckets of a source's objects, valid within their transaction. A field
// is nil if its bucket does not exist.
type Contents struct {
	of      Tree
	Items   *Items
	Indices *Indices
}

// Contents returns the source's contents.
func (t Tree) Contents() Contents {
	return t.contents(t.Root.Bucket(BucketItems), t.Root.Bucket(BucketIndex))
}

func (t Tree) contents(items, index *bolt.Bucket) Contents {
	c := Contents{of: t}
	if items != nil {
		c.Items = SealItems(t.Seal, t.ID)
		c.Items.Bucket, c.Items.late = items, t.Late
	}
	if index != nil {
		c.Indices = &Indices{index, t.Late}
	}
	return c
}

// CreateContents returns the source's contents, and makes their buckets if there are none.
func (t Tree) CreateContents() (Contents, error) {
	items, err := Create(t.Root, BucketItems)
	if err != nil {
		return Contents{}, err
	}
	index, err := Create(t.Root, BucketIndex)
	return t.contents(items, index), err
}

// DropContents removes all objects, with index entries and notes.
func (t Tree) DropContents() error {
	for _, name := range [][]byte{BucketItems, BucketIndex, BucketNotes} {
		if t.Root.Bucket(name) == nil {
			continue
		}
		if err := Drop(t.Root, name); err != nil {
			return err
		}
	}
	return nil
}

// SealNotes returns the box of notes without a bucket, which can only seal.
func SealNotes(s *seal.Sealer, id string) *Box { return SealBox(s, id, string(BucketNotes), "") }

// Notes returns the notes of unstored objects, or nil if there are none.
func (c Contents) Notes() *Box {
	if c.of.Root == nil {
		return nil
	}
	b := c.of.Root.Bucket(BucketNotes)
	if b == nil {
		return nil
	}
	x := SealNotes(c.of.Seal, c.of.ID)
	x.Bucket = b
	return x
}

// CreateNotes returns the notes, and makes their bucket if there is none.
func (c Contents) CreateNotes() (*Box, error) {
	_, err := Create(c.of.Root, BucketNotes)
	return c.Notes(), err
}
