package boltstore

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
	"weak"

	bolt "go.etcd.io/bbolt"

	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/versions"
)

// formatVersion is the version of the whole file's layout.
const formatVersion = 1

// header is the value at /file/header.
type header struct {
	Format        int            `msgpack:"format"`
	BootID        string         `msgpack:"bootID"`
	Clean         bool           `msgpack:"clean"`
	SyncedCommits bool           `msgpack:"synced,omitempty"` // each commit of the boot is synced
	Created       int64          `msgpack:"created"`          // unix ns
	Keys          *seal.Envelope `msgpack:"keys"`             // only in an encrypted file
	Rotate        bool           `msgpack:"rotate"`           // the data key is older than the keyset's primary key
	// NamesLost: a part of the file was lost. A new source in the file may then be one that
	// plain handlers know, see NoPlain.
	NamesLost bool `msgpack:"namesLost,omitempty"`
}

// getHeader reads the header, which each file of ours has.
func getHeader(tx *bolt.Tx) (h header, err error) {
	f := tx.Bucket(layout.BucketFile)
	if f == nil || f.Get(layout.KeyHeader) == nil {
		return h, fmt.Errorf("%w: the file's header is missing", ErrDamaged)
	}
	return h, format.Get(f, layout.KeyHeader, &h)
}

// updateHeader writes the header as fn makes it.
func updateHeader(tx *bolt.Tx, fn func(h *header)) error {
	h, err := getHeader(tx)
	if err != nil {
		return err
	}
	f, err := layout.Create(tx, layout.BucketFile)
	if err != nil {
		return err
	}
	fn(&h)
	return format.Put(f, layout.KeyHeader, h)
}

// fileNamesLost is the NamesLost of the file's header.
func fileNamesLost(tx *bolt.Tx) bool {
	h, err := getHeader(tx)
	return err != nil || h.NamesLost
}

// digest is a count and an additive checksum of a bucket's content. Unlike a record's own
// checksum, it shows that a record is missing or old.
type digest struct {
	Count uint64 `msgpack:"n"`
	Sum   uint64 `msgpack:"s"`
}

func (d *digest) add(h uint64)    { d.Count++; d.Sum += h }
func (d *digest) remove(h uint64) { d.Count--; d.Sum -= h }

// compare returns ErrDamaged if the records are not those that the digest counts.
func (d digest) compare(o format.Owner, raws []layout.Raw) error {
	var is digest
	for _, r := range raws {
		key, rec, err := o.ParseRecord(r.Key, r.Open())
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

// indexMeta is the part of meta about one index. The index is complete once the function
// of that version was called for every record. Its values and entries are in records and
// bucket even before. Failed counts how often the function failed when the index was built,
// and since.
type indexMeta struct {
	Version  string `msgpack:"version"`
	Complete bool   `msgpack:"complete"`
	Failed   uint64 `msgpack:"failed,omitempty"`
	Digest   digest `msgpack:"digest"`
}

// sourceMeta is a source's state, all in one value. It is written in the same transaction as
// the changes that it describes. It has many fields because all of them must change together
// or not at all.
type sourceMeta struct {
	Source Source        `msgpack:"source"`
	Facts  listing.Facts `msgpack:"facts"` // see Upstream.NoteFacts
	described
	formMeta

	Epoch           uint64        `msgpack:"epoch"`    // goes up when the source is emptied
	Timeline        uint64        `msgpack:"timeline"` // goes up at each noticed restore of the server
	Contents        contentState  `msgpack:"contents"`
	Progress        *listProgress `msgpack:"progress,omitempty"` // of a first list that has not ended
	ResourceVersion string        `msgpack:"resourceVersion"`
	NewestPage      string        `msgpack:"newestPage,omitempty"` // see State.NewestPage
	timesMeta

	Items        digest               `msgpack:"items"`
	Bytes        uint64               `msgpack:"bytes"`
	Indices      map[string]indexMeta `msgpack:"indices"`
	Noted        noted                `msgpack:"noted,omitempty"` // counts the notes
	Degraded     string               `msgpack:"degraded"`
	Seq          uint64               `msgpack:"seq"`
	Told         uint64               `msgpack:"told"`
	JournalBytes uint64               `msgpack:"journalBytes"`
	marksMeta

	// Handlers are the durable handlers, by name.
	Handlers map[string]handlerMeta `msgpack:"handlers,omitempty"`
	// NoPlain: no plain handler was added since the source was made. The journal keeps
	// nothing for one. See Delivery.ExpectPlain.
	NoPlain bool `msgpack:"noPlain,omitempty"`
	// Local: the program has stored objects itself since the last list.
	Local bool `msgpack:"local,omitempty"`

	changed []itemChange // the changes that readers see with this commit
	remark  bool         // this commit begins the marks again
}

// described is what the source's objects and discovery say of its type, see Describe.
type described struct {
	APIVersion string   `msgpack:"apiVersion"`
	Kind       string   `msgpack:"kind"`
	Scope      Scope    `msgpack:"scope,omitempty"`
	Names      []string `msgpack:"names,omitempty"`
	Categories []string `msgpack:"categories,omitempty"`
	Columns    []Column `msgpack:"columns,omitempty"`
}

// formMeta says which Go type and transform the objects have.
type formMeta struct {
	TypeHash  string `msgpack:"typeHash"`
	Transform string `msgpack:"transform"`
	// entries below it have objects of another Go type or transform
	Formed uint64 `msgpack:"formed,omitempty"`
	// entries below it may have old objects of another
	Reformed uint64 `msgpack:"reformed,omitempty"`
}

// timesMeta says when the source was last confirmed, compared and claimed, in wall time and
// unix ns. ConfirmedBy adds the boot at that time, the time since that boot, and whether the
// clock was known to be right. ComparedBy, ClaimedBy and a handler's last use have the same
// form. Eras and Dated say which clocks dated records and entries.
type timesMeta struct {
	Confirmed    int64  `msgpack:"confirmed"`
	ConfirmedBy  *stamp `msgpack:"confirmedBy,omitempty"`
	Compared     int64  `msgpack:"compared,omitempty"` // see State.Compared
	ComparedBy   *stamp `msgpack:"comparedBy,omitempty"`
	Differed     uint64 `msgpack:"differed,omitempty"`     // see State.Differed
	Claimed      int64  `msgpack:"claimed"`                // last use, to the hour
	ClaimedRight bool   `msgpack:"claimedRight,omitempty"` // the clock was known to be right
	ClaimedBy    *stamp `msgpack:"claimedBy,omitempty"`
	Dated        *dated `msgpack:"dated,omitempty"`
	Stamped      int64  `msgpack:"stamped,omitempty"` // the newest Stored of what the program stored itself
	Eras         []era  `msgpack:"eras,omitempty"`
}

// marksMeta are the lists in the journal, oldest first. Marked is when the first mark was
// made: seqs of another series mean nothing. Former is the newest version of any earlier
// series.
type marksMeta struct {
	Marks  []listMark `msgpack:"marks,omitempty"`
	Marked int64      `msgpack:"marked,omitempty"`
	Former string     `msgpack:"former,omitempty"`
}

// contentState says how much of a source's contents is in the file.
type contentState int8

const (
	contentsNone    contentState = iota // nothing was ever stored
	contentsPartial                     // a first list has not ended: readers see nothing
	contentsWhole
)

// listed says whether the contents are those of a server's list and watch.
func (m *sourceMeta) listed() bool { return m.Contents == contentsWhole && !m.Local }

// everListed says whether a list was ever committed: then handlers may know the contents.
func (m *sourceMeta) everListed() bool { return m.Compared != 0 }

func (m *sourceMeta) clone() *sourceMeta {
	c := *m
	c.Eras = slices.Clone(m.Eras)
	if c.Handlers = maps.Clone(m.Handlers); c.Handlers == nil {
		c.Handlers = map[string]handlerMeta{}
	}
	c.Indices = maps.Clone(m.Indices)
	if c.Indices == nil {
		c.Indices = map[string]indexMeta{}
	}
	return &c
}

// empty makes m describe contents without records. Indices keep their versions.
func (m *sourceMeta) empty() {
	m.Items, m.Bytes, m.Degraded, m.Noted = digest{}, 0, "", noted{}
	for name, im := range m.Indices {
		im.Digest = digest{}
		m.Indices[name] = im
	}
}

func (m *sourceMeta) state(d *device) State {
	by := m.Facts.Server
	st := State{
		Source: m.Source, ClusterUID: by.ClusterUID, Server: by.Address, ServerCA: by.CA,
		Kind: m.Kind, APIVersion: m.APIVersion,
		Timeline: m.Timeline, Synced: m.listed(), ResourceVersion: m.ResourceVersion,
		Seq: m.Seq, Told: m.Told, JournalBytes: m.JournalBytes,
		Indices: slices.Sorted(maps.Keys(m.Indices)), Degraded: m.Degraded,
		// the caller may change them
		Names: slices.Clone(m.Names), Categories: slices.Clone(m.Categories), Columns: slices.Clone(m.Columns),
		LacksFields: m.lacksFields(),
	}
	if versions.Newer(m.NewestPage, m.ResourceVersion) {
		st.NewestPage = m.NewestPage
	}
	if m.Contents != contentsPartial {
		st.Objects, st.Bytes = m.Items.Count, m.Bytes
		st.Unstored, st.UnstoredReason = m.Noted.unstored(), m.Noted.Why
		for _, im := range m.Indices {
			st.Unindexed += im.Failed
		}
	}
	if m.Confirmed != 0 {
		st.Confirmed = time.Unix(0, m.Confirmed)
	}
	if age, ok := d.age(m.Confirmed, m.ConfirmedBy); ok {
		st.ConfirmedAge = &age
	}
	if m.Compared != 0 {
		st.Compared, st.Differed = time.Unix(0, m.Compared), m.Differed
	}
	if age, ok := d.age(m.Compared, m.ComparedBy); ok {
		st.ComparedAge = &age
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
		return nil, fmt.Errorf("boltstore: %s: %w", layout.KeyMeta, err)
	}
	return m.clone(), nil
}

// owner is the beginning of the checksums of the source's records.
func (m *sourceMeta) owner() format.Owner { return format.OwnerOf(m.Source.ID()) }

// sourceTx is one source's buckets within a transaction. It is one type because a
// transaction may touch all of them. Its methods are in the files of their subjects:
// pending keys, journal, notes, progress.
type sourceTx struct{ layout.Tree }

func sourceIn(b *bolt.Bucket, id string, s *seal.Sealer) sourceTx {
	return sourceTx{layout.Tree{Root: b, ID: id, Seal: s}}
}

// source opens a source's buckets. tx must come from a view or update of h.
func (h *handle) source(tx *bolt.Tx, id string) (sourceTx, bool) {
	sources := tx.Bucket(layout.BucketSources)
	if sources == nil {
		return sourceTx{}, false
	}
	b := sources.Bucket([]byte(id))
	src := sourceIn(b, id, h.seal)
	src.Late = h.late
	return src, b != nil
}

func (t sourceTx) meta() (*sourceMeta, error) {
	return t.openMeta(t.Root.Get(layout.KeyMeta))
}

// errMisnamed: a source's meta is that of another one.
var errMisnamed = fmt.Errorf("%w: it is of another source", ErrDamaged)

// openMeta decrypts and parses a stored meta.
func (t sourceTx) openMeta(raw []byte) (*sourceMeta, error) {
	if raw != nil {
		var err error
		if raw, err = t.OpenMetaBytes(raw); err != nil {
			return nil, fmt.Errorf("boltstore: %s: %w", layout.KeyMeta, err)
		}
	}
	m, err := parseMeta(raw)
	if err == nil && m.Source.ID() != t.ID {
		return nil, fmt.Errorf("boltstore: %s: %w", layout.KeyMeta, errMisnamed)
	}
	return m, err
}

// parsedMeta is a meta as it is in the file, and its parsed form, which does not change.
type parsedMeta struct {
	stored []byte
	meta   *sourceMeta
}

// meta returns the meta that a transaction sees, which the caller must not change. It is
// decrypted and parsed once for each commit that changes it: this would take most of the
// time of a read of one object. The garbage collector takes it from sources that nobody
// reads.
func (p *parsed) meta(src sourceTx) (*sourceMeta, error) {
	stored := src.Root.Get(layout.KeyMeta)
	if last := p.last(src.ID); last != nil && stored != nil && bytes.Equal(last.stored, stored) {
		return last.meta, nil
	}
	m, err := src.openMeta(stored)
	if err == nil {
		p.metas.Store(src.ID, weak.Make(&parsedMeta{bytes.Clone(stored), m}))
	}
	return m, err
}

// last returns the meta of the source with that ID that was parsed last, nil if there
// is none.
func (p *parsed) last(id string) *parsedMeta {
	if m, ok := p.metas.Load(id); ok {
		return m.(weak.Pointer[parsedMeta]).Value()
	}
	return nil
}

func (t sourceTx) putMeta(m *sourceMeta) error {
	data, err := format.Encode(layout.KeyMeta, m)
	if err == nil {
		data, err = t.SealMetaBytes(data)
	}
	if err != nil {
		return err
	}
	return t.Root.Put(layout.KeyMeta, data)
}

// contentsTx is a source's objects within a transaction.
type contentsTx struct {
	layout.Contents
	notes notes
}

// contents opens the contents. Their fields are nil if they do not exist.
func (t sourceTx) contents() contentsTx {
	c := t.Contents()
	return contentsTx{c, notes{c}}
}

// served returns the contents that m describes. They must be there; lost writes can leave
// m without them.
func (t sourceTx) served(m *sourceMeta) (contentsTx, error) {
	c := t.contents()
	if m.Contents != contentsNone && c.Items == nil {
		return c, fmt.Errorf("%w: the objects are missing", ErrDamaged)
	}
	return c, nil
}

func (t sourceTx) createContents() (contentsTx, error) {
	c, err := t.CreateContents()
	return contentsTx{c, notes{c}}, err
}
