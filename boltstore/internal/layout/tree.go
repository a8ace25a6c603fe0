package layout

import (
	"encoding/binary"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/boltstore/seal"
)

// Names of buckets, and of keys beside them.
var (
	BucketFile    = []byte("file")
	BucketSources = []byte("sources")
	BucketItems   = []byte("items")
	BucketIndex   = []byte("index")
	BucketJournal = []byte("journal")
	BucketNotes   = []byte("notes")
	BucketPending = []byte("pending")
	KeyHeader     = []byte("header")
	KeyMeta       = []byte("meta")
)

// Tree has the buckets of one source, valid within its transaction. Seal is nil in a file
// that is not encrypted. Late has pages that are verified before they are read; a method
// that meets damage in one panics with ErrDamaged, as bbolt panics where it notices any.
type Tree struct {
	Root *bolt.Bucket
	ID   string
	Seal *seal.Sealer
	Late *pages.Late
}

// whole verifies all pages of b.
func whole(late *pages.Late, b *bolt.Bucket) {
	if err := late.Whole(uint64(b.Root())); err != nil {
		panic(err)
	}
}

// Owner is the beginning of the sums of the source's records and blocks.
func (t Tree) Owner() format.Owner { return format.OwnerOf(t.ID) }

// OpenMetaBytes reverses [Tree.SealMetaBytes]. A meta can be read under another source's
// name, too: the caller compares the source in it.
func (t Tree) OpenMetaBytes(raw []byte) ([]byte, error) {
	b, err := t.Seal.OpenValue(raw, place(placeMeta))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", faults.ErrDamaged, ErrUnopened)
	}
	return b, nil
}

// SealMetaBytes returns the meta b as it is stored.
func (t Tree) SealMetaBytes(b []byte) ([]byte, error) { return t.Seal.Value(b, place(placeMeta)) }

// Journal returns the journal, or nil if there is none.
func (t Tree) Journal() *Blocks {
	if b := t.Root.Bucket(BucketJournal); b != nil {
		return &Blocks{b}
	}
	return nil
}

// CreateJournal returns the journal, and makes its bucket if there is none.
func (t Tree) CreateJournal() (*Blocks, error) {
	b, err := Create(t.Root, BucketJournal)
	if err != nil {
		return nil, err
	}
	b.FillPercent = 0.9 // blocks are appended in order
	return &Blocks{b}, nil
}

// PendingBox has the pending keys of a handler, by item key. It is nil if b is.
func (t Tree) PendingBox(b *bolt.Bucket, name string) *Box {
	if b == nil {
		return nil
	}
	x := SealBox(t.Seal, t.ID, "pending", name)
	x.Bucket = b
	return x
}

// U64 is n as a key of a bucket.
func U64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }
