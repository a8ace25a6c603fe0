package boltstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/seal"
)

// formatVersion is the version of the whole file's layout.
const formatVersion = 1

var (
	bucketFile     = []byte("file")
	bucketSources  = []byte("sources")
	bucketGen      = []byte("gen")
	bucketItems    = []byte("items")
	bucketIndex    = []byte("index")
	bucketJournal  = []byte("journal")
	bucketHandlers = []byte("handlers")
	bucketDicts    = []byte("dicts")
	keyHeader      = []byte("header")
	keyMeta        = []byte("meta")
)

// header is what /file holds.
type header struct {
	Format  int            `msgpack:"format"`
	BootID  string         `msgpack:"bootID"`
	Clean   bool           `msgpack:"clean"`
	Created int64          `msgpack:"created"` // unix ns
	Keys    *seal.Envelope `msgpack:"keys"`    // of an encrypted file
	Rotate  bool           `msgpack:"rotate"`  // the data keys are older than the keyset's primary key
}

// digest is a count and an additive checksum of a bucket's content. Unlike a
// record's own checksum it notices a record that is missing or an old one.
type digest struct {
	Count uint64 `msgpack:"n"`
	Sum   uint64 `msgpack:"s"`
}

func (d *digest) add(h uint64)    { d.Count++; d.Sum += h }
func (d *digest) remove(h uint64) { d.Count--; d.Sum -= h }

// compare says whether the records are those that the digest is of.
func (d digest) compare(raws []raw) error {
	var is digest
	for _, r := range raws {
		key, rec, err := format.ParseRecord(r.k, r.open())
		if err != nil {
			return err
		}
		is.add(format.HashRecord(key, rec))
	}
	if is != d {
		return fmt.Errorf("%w: the records are not those last committed: %d of %d", ErrDamaged, is.Count, d.Count)
	}
	return nil
}

// indexMeta is what meta says of one index. Records list values for it and the
// bucket has their entries whether or not it is complete; it is complete once
// every record has been indexed by the function of that version.
type indexMeta struct {
	Version  string `msgpack:"version"`
	Complete bool   `msgpack:"complete"`
	Digest   digest `msgpack:"digest"`
}

// sourceMeta is the one record of a source's state. It changes only in the
// transaction that makes the change it describes.
type sourceMeta struct {
	Source          Source               `msgpack:"source"`
	ClusterUID      string               `msgpack:"clusterUID"`
	Server          string               `msgpack:"server"`
	FlowSchemaUID   string               `msgpack:"flowSchemaUID,omitempty"`
	ServerCA        string               `msgpack:"serverCA,omitempty"`
	Form            string               `msgpack:"form,omitempty"` // sign of that in which the server served the objects
	APIVersion      string               `msgpack:"apiVersion"`
	Kind            string               `msgpack:"kind"`
	Epoch           uint64               `msgpack:"epoch"`      // counted up when the contents were set aside
	History         uint64               `msgpack:"history"`    // counted up at each restore of the server that was noticed
	Generation      uint64               `msgpack:"generation"` // 0: never synced
	ResourceVersion string               `msgpack:"resourceVersion"`
	Listed          string               `msgpack:"listed,omitempty"` // version of the last list
	Moved           bool                 `msgpack:"moved,omitempty"`  // a list before it had another one
	Stands          bool                 `msgpack:"stands,omitempty"` // see Store.Stands
	Confirmed       int64                `msgpack:"confirmed"`        // unix ns
	ConfirmedBy     *moment              `msgpack:"confirmedBy,omitempty"`
	Claimed         int64                `msgpack:"claimed"`                // unix ns, when last seen claimed
	ClaimedRight    bool                 `msgpack:"claimedRight,omitempty"` // by a clock that was known to be right
	ClaimedBy       *moment              `msgpack:"claimedBy,omitempty"`
	Dated           *dated               `msgpack:"dated,omitempty"`
	Seq             uint64               `msgpack:"seq"`
	Told            uint64               `msgpack:"told"`
	Items           digest               `msgpack:"items"`
	Bytes           uint64               `msgpack:"bytes"`
	JournalBytes    uint64               `msgpack:"journalBytes"`
	Indices         map[string]indexMeta `msgpack:"indices"`
	Dicts           map[uint32]dictUse   `msgpack:"dicts"`
	TypeHash        string               `msgpack:"typeHash"`
	Transform       string               `msgpack:"transform"`
	Degraded        string               `msgpack:"degraded"`
	Scope           Scope                `msgpack:"scope,omitempty"` // see Describe
	Names           []string             `msgpack:"names,omitempty"`
	// NamesLost: damage may have taken names of durable handlers. One that is
	// not there may have been: it starts over. It stays, as nothing tells when
	// the last one of them has come back.
	NamesLost bool `msgpack:"namesLost,omitempty"`
	// Unlisted: the contents are what the program itself has stored. The server
	// has not been read yet.
	Unlisted bool `msgpack:"unlisted,omitempty"`
	// Own is the digest of the bases of what the program has written since.
	Own digest `msgpack:"own"`
	// Noted counts what could not be stored, of the generation.
	Noted noted `msgpack:"noted,omitempty"`
}

// listed says whether the contents are the server's, but for what the program
// has written over them.
func (m *sourceMeta) listed() bool { return m.Generation > 0 && !m.Unlisted }

func (m *sourceMeta) clone() *sourceMeta {
	c := *m
	c.Indices = maps.Clone(m.Indices)
	if c.Indices == nil {
		c.Indices = map[string]indexMeta{}
	}
	if c.Dicts = maps.Clone(m.Dicts); c.Dicts == nil {
		c.Dicts = map[uint32]dictUse{}
	}
	return &c
}

func (m *sourceMeta) state(d *device) State {
	st := State{
		Source: m.Source, ClusterUID: m.ClusterUID, Server: m.Server, FlowSchemaUID: m.FlowSchemaUID, ServerCA: m.ServerCA, Kind: m.Kind, APIVersion: m.APIVersion,
		History: m.History, Synced: m.listed(), ResourceVersion: m.ResourceVersion,
		Objects: m.Items.Count, Bytes: m.Bytes, Seq: m.Seq, Told: m.Told, JournalBytes: m.JournalBytes,
		Indices: slices.Sorted(maps.Keys(m.Indices)), Degraded: m.Degraded,
		Names:    m.Names,
		Unstored: m.Noted.unstored(), UnstoredReason: m.Noted.Why, Unindexed: m.Noted.Unindexed,
	}
	if m.Confirmed != 0 {
		st.Confirmed = time.Unix(0, m.Confirmed)
	}
	if age, ok := d.age(m.Confirmed, m.ConfirmedBy); ok {
		st.ConfirmedAge = &age
	}
	if m.Claimed != 0 {
		st.Claimed = time.Unix(0, m.Claimed)
	}
	if age, ok := d.age(m.Claimed, m.ClaimedBy); ok {
		st.ClaimedAge = &age
	}
	return st
}

func parseMeta(raw []byte) (*sourceMeta, error) {
	m := &sourceMeta{}
	if err := format.Decode(raw, m); err != nil {
		return nil, fmt.Errorf("boltstore: %s: %w", keyMeta, err)
	}
	return m.clone(), nil
}

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// sourceTx is one source's buckets within a transaction.
type sourceTx struct {
	root *bolt.Bucket
	id   string
	seal *seal.Sealer
}

// source opens a source's buckets. tx must be of a view or update of h.
func (h *handle) source(tx *bolt.Tx, id string) (sourceTx, bool) {
	sources := tx.Bucket(bucketSources)
	if sources == nil {
		return sourceTx{}, false
	}
	name, err := sourceName(h.seal, id)
	if err != nil {
		return sourceTx{}, false
	}
	b := sources.Bucket(name)
	return sourceTx{b, id, h.seal}, b != nil
}

// sourceName is the name of a source's bucket.
func sourceName(s *seal.Sealer, id string) ([]byte, error) {
	return s.Name([]byte(id), place(placeSource))
}

// sourceID is the id that sourceName was given. It is empty if that cannot be
// known.
func sourceID(s *seal.Sealer, name []byte) string {
	id, err := s.OpenName(name, place(placeSource))
	if err != nil {
		return ""
	}
	return string(id)
}

func (t sourceTx) metaPlace() []byte { return place(placeMeta, []byte(t.id)) }

func (t sourceTx) meta() (*sourceMeta, error) {
	return t.openMeta(t.root.Get(keyMeta))
}

// openMeta parses a meta as it is stored.
func (t sourceTx) openMeta(raw []byte) (*sourceMeta, error) {
	if raw != nil {
		var err error
		if raw, err = t.seal.OpenValue(raw, t.metaPlace()); err != nil {
			return nil, fmt.Errorf("boltstore: %s: %w: %w", keyMeta, ErrDamaged, errUnopened)
		}
	}
	return parseMeta(raw)
}

func (t sourceTx) putMeta(m *sourceMeta) error {
	data, err := t.sealMeta(m)
	if err != nil {
		return err
	}
	return t.root.Put(keyMeta, data)
}

func (t sourceTx) sealMeta(m *sourceMeta) ([]byte, error) {
	data, err := format.Encode(keyMeta, m)
	if err != nil {
		return nil, err
	}
	return t.seal.Value(data, t.metaPlace())
}

// genTx is one generation's buckets within a transaction.
type genTx struct {
	b       *bolt.Bucket
	items   *items
	own     *items // bases of what the program has written, nil if there are none
	indices *indices
	notes   notes
}

func (t sourceTx) genTx(n uint64, b, items, index *bolt.Bucket) genTx {
	g := genTx{b: b, notes: notes{b, t, n}}
	if items != nil {
		g.items = sealItems(t.seal, t.id, n)
		g.items.b = items
		g.own = ownOf(b, g.items)
	}
	if index != nil {
		g.indices = &indices{index, t.seal, t.id}
	}
	return g
}

// gen opens a generation; its fields are nil where it does not exist.
func (t sourceTx) gen(n uint64) genTx {
	gens := t.root.Bucket(bucketGen)
	if gens == nil {
		return genTx{}
	}
	b := gens.Bucket(u64(n))
	if b == nil {
		return genTx{}
	}
	return t.genTx(n, b, b.Bucket(bucketItems), b.Bucket(bucketIndex))
}

func (t sourceTx) createGen(n uint64) (genTx, error) {
	gens, err := t.root.CreateBucketIfNotExists(bucketGen)
	if err != nil {
		return genTx{}, err
	}
	b, err := gens.CreateBucketIfNotExists(u64(n))
	if err != nil {
		return genTx{}, err
	}
	items, err := b.CreateBucketIfNotExists(bucketItems)
	if err != nil {
		return genTx{}, err
	}
	indices, err := b.CreateBucketIfNotExists(bucketIndex)
	return t.genTx(n, b, items, indices), err
}

// dropGensExcept removes every other generation: leftovers of a relist that
// did not end, or the one it replaced.
func (t sourceTx) dropGensExcept(keep ...uint64) error {
	gens := t.root.Bucket(bucketGen)
	if gens == nil {
		return nil
	}
	var drop [][]byte
	err := gens.ForEachBucket(func(k []byte) error {
		if !slices.ContainsFunc(keep, func(n uint64) bool { return bytes.Equal(k, u64(n)) }) {
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
