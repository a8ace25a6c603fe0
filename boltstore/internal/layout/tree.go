package layout

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/index"
)

var (
	BucketFile     = []byte("file")
	BucketSources  = []byte("sources")
	BucketGen      = []byte("gen")
	BucketItems    = []byte("items")
	BucketIndex    = []byte("index")
	BucketJournal  = []byte("journal")
	BucketHandlers = []byte("handlers")
	BucketDicts    = []byte("dicts")
	BucketOwn      = []byte("own")
	BucketNotes    = []byte("notes")
	BucketParked   = []byte("parked")
	BucketAside    = []byte("aside")
	KeyHeader      = []byte("header")
	KeyMeta        = []byte("meta")
)

// tree is one source's buckets within a transaction.
type Tree struct {
	Root *bolt.Bucket
	ID   string
	Seal *seal.Sealer
}

func (t Tree) metaPlace() []byte { return place(placeMeta, []byte(t.ID)) }

// openMetaBytes returns what sealMetaBytes was given.
func (t Tree) OpenMetaBytes(raw []byte) ([]byte, error) {
	b, err := t.Seal.OpenValue(raw, t.metaPlace())
	if err != nil {
		return nil, fmt.Errorf("%w: %w", faults.ErrDamaged, ErrUnopened)
	}
	return b, nil
}

func (t Tree) SealMetaBytes(b []byte) ([]byte, error) { return t.Seal.Value(b, t.metaPlace()) }

// sourceName is the name of a source's bucket.
func SourceName(s *seal.Sealer, id string) ([]byte, error) {
	return s.Name([]byte(id), place(placeSource))
}

// sourceID is the id that sourceName was given. It is empty if that cannot be
// known.
func SourceID(s *seal.Sealer, name []byte) string {
	id, err := s.OpenName(name, place(placeSource))
	if err != nil {
		return ""
	}
	return string(id)
}

// journal returns nil if there is none.
func (t Tree) Journal() *Blocks {
	if b := t.Root.Bucket(BucketJournal); b != nil {
		return &Blocks{b}
	}
	return nil
}

func (t Tree) CreateJournal() (*Blocks, error) {
	b, err := t.Root.CreateBucketIfNotExists(BucketJournal)
	if err != nil {
		return nil, err
	}
	b.FillPercent = 0.9 // appended in order
	return &Blocks{b}, nil
}

func (t Tree) box(b *bolt.Bucket, kind, sub string, names bool) *Box {
	if b == nil {
		return nil
	}
	x := SealBox(t.Seal, t.ID, kind, sub, names)
	x.Bucket = b
	return x
}

// handlerBox has the positions, by name.
func (t Tree) HandlerBox(b *bolt.Bucket) *Box { return t.box(b, "handlers", "", false) }

// parkedBox has what is parked for a handler, by item key.
func (t Tree) ParkedBox(b *bolt.Bucket, name string) *Box { return t.box(b, "parked", name, true) }

// dictBox has the dictionaries, by version.
func (t Tree) DictBox(b *bolt.Bucket) *Box { return t.box(b, "dicts", "", false) }

// sealBlock seals a journal block. What trimming and seeking want of it stays
// readable before the sealed rest:
//
//	0x81, uvarint count of entries, uvarint time of the last one, the sealed block
func (t Tree) SealBlock(seq uint64, b []byte) ([]byte, error) {
	if t.Seal == nil {
		return b, nil
	}
	h, _, err := format.ParseBlockHead(seq, b)
	if err != nil {
		return nil, err
	}
	head := append(make([]byte, 0, maxBlockHead), sealedBlock)
	head = binary.AppendUvarint(head, h.Count)
	head = binary.AppendUvarint(head, uint64(h.Last))
	sealed, err := t.Seal.Value(b, t.blockPlace(seq, head))
	return append(head, sealed...), err
}

func (t Tree) blockPlace(seq uint64, head []byte) []byte {
	return place(placeBlock, []byte(t.ID), U64(seq), head)
}

// openBlock returns the block as packBlock made it.
func (t Tree) OpenBlock(seq uint64, v []byte) ([]byte, error) {
	if t.Seal == nil {
		return v, nil
	}
	_, n, err := t.BlockHead(seq, v)
	if err != nil {
		return nil, err
	}
	b, err := t.Seal.OpenValue(v[n:], t.blockPlace(seq, v[:n]))
	if err != nil {
		return nil, fmt.Errorf("journal block at %d: %w: %w", seq, faults.ErrDamaged, ErrUnopened)
	}
	return b, nil
}

// blockHead reads the head of a stored block and says where it ends.
func (t Tree) BlockHead(seq uint64, v []byte) (h format.BlockHead, n int, err error) {
	if t.Seal == nil {
		return format.ParseBlockHead(seq, v)
	}
	if len(v) < 3 || v[0] != sealedBlock {
		return h, 0, fmt.Errorf("journal block at %d: %w: version or length", seq, faults.ErrDamaged)
	}
	return format.ParseHead(seq, v, 1)
}

// genTree is one generation's buckets within a transaction.
type Gen struct {
	Bucket  *bolt.Bucket
	of      Tree
	n       uint64
	Items   *Items
	Own     *Items // bases of what the program has written, nil if there are none
	Indices *indices
}

func (t Tree) gen(n uint64, b, items, index *bolt.Bucket) Gen {
	g := Gen{Bucket: b, of: t, n: n}
	if items != nil {
		g.Items = SealItems(t.Seal, t.ID, n)
		g.Items.Bucket = items
		g.Own = ownOf(b, g.Items)
	}
	if index != nil {
		g.Indices = &indices{index, t.Seal, t.ID}
	}
	return g
}

// openGen opens a generation; its fields are nil where it does not exist.
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

func (t Tree) CreateGen(n uint64) (Gen, error) {
	gens, err := t.Root.CreateBucketIfNotExists(BucketGen)
	if err != nil {
		return Gen{}, err
	}
	b, err := gens.CreateBucketIfNotExists(U64(n))
	if err != nil {
		return Gen{}, err
	}
	items, err := b.CreateBucketIfNotExists(BucketItems)
	if err != nil {
		return Gen{}, err
	}
	indices, err := b.CreateBucketIfNotExists(BucketIndex)
	return t.gen(n, b, items, indices), err
}

// dropGensExcept removes every other generation: leftovers of a relist that
// did not end, or the one it replaced.
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
			err = gens.DeleteBucket(k)
		}
	}
	return err
}
func SealNotes(s *seal.Sealer, id string, gen uint64) *Box {
	return SealBox(s, id, string(BucketNotes), string(U64(gen)), true)
}

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

func (g Gen) CreateNotes() (*Box, error) {
	_, err := g.Bucket.CreateBucketIfNotExists(BucketNotes)
	return g.Notes(), err
}

// sealOwn is without a bucket: it only seals. Names are those of items, so that
// both buckets are in the same order.
func (it *Items) SealOwn() *Items {
	own := *it
	own.Bucket = nil
	if own.seal != nil {
		own.gen = append(bytes.Clone(it.gen), BucketOwn...)
	}
	return &own
}

// ownOf opens the bases of a generation, nil if there are none.
func ownOf(g *bolt.Bucket, it *Items) *Items {
	b := g.Bucket(BucketOwn)
	if b == nil {
		return nil
	}
	own := it.SealOwn()
	own.Bucket = b
	return own
}

// createOwn opens the bases, and makes their bucket if there is none.
func (g *Gen) CreateOwn() error {
	if g.Own != nil {
		return nil
	}
	b, err := g.Bucket.CreateBucketIfNotExists(BucketOwn)
	if err != nil {
		return err
	}
	g.Own = g.Items.SealOwn()
	g.Own.Bucket = b
	return nil
}

// indexBucket is the name of an index's bucket, which must not be empty.
func IndexBucket(name string) []byte { return index.AppendKey(nil, name) }

// outOfOrder: going on from k would be going round in a circle.
func OutOfOrder(k []byte) error {
	return fmt.Errorf("%w: the keys are not in order at %x", faults.ErrDamaged, k)
}

func U64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// itemPlace is where the item keys of a source are.
func ItemPlace(id string) []byte { return place(placeItem, []byte(id)) }

// progressPlace is where the progress of a source's first list is.
func ProgressPlace(id string) []byte { return place(placeProgress, []byte(id)) }
