package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// salvaged says what could be saved of a damaged file.
type salvaged struct {
	objects, of uint64
	damage      []error
}

func (s salvaged) whole() bool { return len(s.damage) == 0 }

func (s *salvaged) lost(format string, args ...any) {
	s.damage = append(s.damage, fmt.Errorf(format, args...))
}

// salvage copies what verifies in the file at path into a new one: records
// with their index entries, journal blocks, meta. A source of which all is
// there is as it was; any other is marked degraded, its objects are served and
// compared with the server's as soon as it can be reached. Where the metas of
// sources are known they are believed, and not the file's.
func (db *DB) salvage(path string, to *bolt.DB, known map[string]*sourceMeta) (res salvaged) {
	from, done, err := openPages(path)
	if err != nil {
		res.lost("%w", err)
		from, done = &pageFile{r: bytes.NewReader(nil), meta: &boltMeta{pageSize: 4096}}, func() {}
	}
	defer done()
	sources, err := from.find(from.top(), bucketSources)
	if err != nil {
		res.lost("%w", err)
	}
	refs := map[string]bucketRef{}
	err = from.each(sources, func(k, _ []byte, sub *bucketRef) {
		if sub != nil {
			refs[string(k)] = *sub
		}
	})
	if err != nil {
		res.lost("%w", err)
	}
	for id := range known {
		if _, ok := refs[id]; !ok {
			refs[id] = bucketRef{} // lost but for its meta
		}
	}
	for id, ref := range refs {
		c := &copier{from: from, to: to, id: id}
		if err := c.copy(ref, known[id]); err != nil {
			res.lost("source %s: %w", id, err)
		}
		if c.m != nil {
			res.objects, res.of = res.objects+c.m.Items.Count, res.of+c.was.Items.Count
		}
	}
	return res
}

// find returns a bucket in another one; an error says what stood in the way.
func (f *pageFile) find(b bucketRef, name []byte) (found bucketRef, err error) {
	ok := false
	err = f.each(b, func(k, _ []byte, sub *bucketRef) {
		if sub != nil && bytes.Equal(k, name) {
			found, ok = *sub, true
		}
	})
	if !ok {
		return bucketRef{inline: emptyPage}, errors.Join(fmt.Errorf("%w: bucket %x is missing", ErrDamaged, name), err)
	}
	return found, nil
}

// emptyPage is an inline bucket with nothing in it.
var emptyPage = binary.NativeEndian.AppendUint16(make([]byte, 8, pageHead), pageLeaf)[:pageHead]

// copier copies one source into a new file, a few MiB a transaction.
type copier struct {
	from   *pageFile
	to     *bolt.DB
	id     string
	was, m *sourceMeta
	todo   []func(src sourceTx, a *applier) error
	size   int
	errs   []error
}

func (c *copier) copy(ref bucketRef, known *sourceMeta) error {
	subs := map[string]bucketRef{}
	var meta []byte
	c.note(c.from.each(ref, func(k, v []byte, sub *bucketRef) {
		if sub != nil {
			subs[string(k)] = *sub
		} else if bytes.Equal(k, keyMeta) {
			meta = v
		}
	}))
	if c.was = known; known == nil {
		m, err := parseMeta(meta)
		if err != nil || m.Source.ID() != c.id {
			return errors.Join(append(c.errs, fmt.Errorf("%w: what it is cannot be read", ErrDamaged), err)...)
		}
		c.was = m
	}
	c.m = c.was.clone()
	c.m.Items, c.m.Bytes, c.m.JournalBytes = digest{}, 0, 0
	c.m.countNoDicts()
	for name, im := range c.m.Indices {
		im.Digest = digest{}
		c.m.Indices[name] = im
	}
	if gens, ok := subs[string(bucketGen)]; ok && c.m.Generation > 0 {
		gen, err := c.from.find(gens, u64(c.m.Generation))
		c.note(err)
		items, err := c.from.find(gen, bucketItems)
		c.note(err)
		c.note(c.from.each(items, c.record))
	}
	if j, ok := subs[string(bucketJournal)]; ok {
		c.journal(j)
	}
	delete(subs, string(bucketGen))
	delete(subs, string(bucketJournal))
	for name, sub := range subs {
		c.bucket([][]byte{[]byte(name)}, sub)
	}
	c.flush()
	if len(c.errs) == 0 {
		c.note(c.compare())
	}
	if len(c.errs) > 0 {
		c.m.Degraded = fmt.Sprintf("the file was damaged, %d of %d objects could be saved", c.m.Items.Count, c.was.Items.Count)
	}
	c.note(c.to.Update(func(tx *bolt.Tx) error {
		b, err := tx.Bucket(bucketSources).CreateBucketIfNotExists([]byte(c.id))
		if err != nil {
			return err
		}
		return sourceTx{b}.putMeta(c.m)
	}))
	return errors.Join(c.errs...)
}

func (c *copier) note(err error) {
	if err != nil {
		c.errs = append(c.errs, err)
	}
}

func (c *copier) record(k, raw []byte, _ *bucketRef) {
	key, r, err := parseRecord(k, raw)
	if err != nil {
		c.note(err)
		return
	}
	c.do(len(raw), func(_ sourceTx, a *applier) error { return a.give(key, r, raw, nil) })
}

// journal copies the newest blocks that follow one another.
func (c *copier) journal(ref bucketRef) {
	type block struct{ seq, next uint64 }
	var blocks []block
	c.note(c.from.each(ref, func(k, v []byte, _ *bucketRef) {
		if len(k) != 8 || binary.BigEndian.Uint64(k) > c.m.Seq {
			return // staged and never committed
		}
		seq := binary.BigEndian.Uint64(k)
		drafts, err := unpackBlock(seq, v)
		if err != nil {
			c.note(err)
			return
		}
		blocks = append(blocks, block{seq, seq + uint64(len(drafts))})
	}))
	from := c.m.Seq + 1
	for _, b := range slices.Backward(blocks) {
		if b.next != from {
			c.note(fmt.Errorf("journal: %w: entries %d to %d are missing", ErrDamaged, b.next, from-1))
			break
		}
		from = b.seq
	}
	_ = c.from.each(ref, func(k, v []byte, _ *bucketRef) { // noted above
		if len(k) != 8 || binary.BigEndian.Uint64(k) < from || binary.BigEndian.Uint64(k) > c.m.Seq {
			return
		}
		c.do(len(v), func(src sourceTx, a *applier) error {
			b, err := src.root.CreateBucketIfNotExists(bucketJournal)
			if err != nil {
				return err
			}
			b.FillPercent = 0.9
			a.m.JournalBytes += uint64(len(v))
			return b.Put(k, v)
		})
	})
}

// bucket copies a bucket as it is.
func (c *copier) bucket(path [][]byte, ref bucketRef) {
	if len(path) > maxDepth {
		return
	}
	c.note(c.from.each(ref, func(k, v []byte, sub *bucketRef) {
		if sub != nil {
			c.bucket(append(path[:len(path):len(path)], k), *sub)
			return
		}
		c.do(len(k)+len(v), func(src sourceTx, _ *applier) error {
			to := src.root
			for _, name := range path {
				var err error
				if to, err = to.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			return to.Put(k, v)
		})
	}))
}

func (c *copier) do(size int, fn func(src sourceTx, a *applier) error) {
	c.todo, c.size = append(c.todo, fn), c.size+size
	if c.size >= 4<<20 {
		c.flush()
	}
}

func (c *copier) flush() {
	m := c.m
	err := c.to.Update(func(tx *bolt.Tx) error {
		b, err := tx.Bucket(bucketSources).CreateBucketIfNotExists([]byte(c.id))
		if err != nil {
			return err
		}
		src := sourceTx{b}
		m = c.m.clone()
		a := &applier{m: m}
		if m.Generation > 0 {
			if a.to, err = src.createGen(m.Generation); err != nil {
				return err
			}
		}
		for _, fn := range c.todo {
			if err := fn(src, a); err != nil {
				return err
			}
		}
		return nil
	})
	c.todo, c.size = nil, 0
	if err == nil {
		c.m = m
	}
	c.note(err)
}

// compare says whether all is there that was.
func (c *copier) compare() error {
	if c.m.Items != c.was.Items || c.m.Bytes != c.was.Bytes {
		return fmt.Errorf("%w: the records are not those last committed", ErrDamaged)
	}
	for name, im := range c.was.Indices {
		if c.m.Indices[name].Digest != im.Digest {
			return fmt.Errorf("%w: index %s is not the one last committed", ErrDamaged, name)
		}
	}
	return nil
}
