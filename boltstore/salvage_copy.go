package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/kubewake/kubewake/boltstore/internal/faults"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/index"
)

// copier copies one source into a new file, in transactions of a few MiB.
type copier struct {
	*copying
	id     string
	was, m *sourceMeta
	todo   []func(src sourceTx, a *applier) error
	size   int
	errs   faults.List
	roots  map[uint64]bool // of the buckets that were copied
	at     *bolt.Bucket    // the one at atPath, in the transaction under way
	atPath [][]byte
}

// copy copies the source whose bucket is ref. It returns the damage that it met; then the
// copy is degraded.
func (c *copier) copy(ref pages.Bucket) error {
	if c.whole {
		c.bucket(nil, ref)
		c.flush()
		return c.errs.Err()
	}
	subs := map[string]pages.Bucket{}
	var meta []byte
	c.note(c.from.Each(ref, func(k, v []byte, sub *pages.Bucket) {
		if sub != nil {
			subs[string(k)] = *sub
		} else if bytes.Equal(k, layout.KeyMeta) {
			meta = v
		} else {
			c.unknown(k)
		}
	}))
	src := sourceIn(nil, c.id, c.seals.from)
	var err error
	if c.was, err = src.openMeta(meta); err != nil {
		c.note(fmt.Errorf("%w: the description of the source cannot be read", ErrDamaged))
		c.note(err)
		return c.errs.Err()
	}
	c.m = c.was.clone()
	c.m.empty()
	c.m.JournalBytes, c.m.Degraded = 0, c.was.Degraded
	c.m.Noted = noted{Nameless: c.was.Noted.Nameless, Why: c.was.Noted.Why}
	if items, ok := subs[string(layout.BucketItems)]; ok {
		sealed := layout.SealItems(c.seals.from, c.id)
		c.note(c.from.Each(items, func(k, v []byte, _ *pages.Bucket) {
			c.record(layout.Raw{Key: k, Stored: v, In: sealed})
		}))
	}
	if _, there := subs[string(layout.BucketItems)]; !there && c.m.Contents != contentsNone {
		c.note(fmt.Errorf("%w: the objects are missing", ErrDamaged))
	}
	if notes, ok := subs[string(layout.BucketNotes)]; ok && !c.was.Noted.none() {
		c.notes(notes)
	}
	if j, ok := subs[string(layout.BucketJournal)]; ok {
		c.journal(src, j)
	}
	for _, name := range [][]byte{layout.BucketItems, layout.BucketIndex, layout.BucketNotes, layout.BucketJournal} {
		delete(subs, string(name))
	}
	restart := c.others(subs) || c.restart
	c.flush()
	if c.m.Items != c.was.Items || c.m.Noted.Unstored < c.was.Noted.Unstored {
		restart = true // no list will show the delete of an object whose record is lost
	}
	if c.errs.Len() == 0 {
		c.note(c.compare())
	}
	if c.errs.Len() > 0 {
		c.m.Degraded = fmt.Sprintf("the file was damaged, %d of %d objects could be saved", c.m.Items.Count,
			c.was.Items.Count)
	}
	c.note(c.write(func(tx *bolt.Tx) error {
		src, err := c.target(tx)
		if err != nil {
			return err
		}
		if restart {
			if err := src.restartHandlers(c.m); err != nil {
				return err
			}
		}
		if err := src.restartDamaged(c.m); err != nil {
			return err
		}
		return src.putMeta(c.m)
	}))
	return c.errs.Err()
}

// others copies the source's other buckets. restart says that handlers must be told a Reset,
// since changes that they were not told may be lost.
func (c *copier) others(subs map[string]pages.Bucket) (restart bool) {
	for name, sub := range subs {
		if !isPart([]byte(name)) {
			c.unknown([]byte(name))
			restart = true
			continue
		}
		c.bucket([][]byte{[]byte(name)}, sub)
	}
	return restart
}

func (c *copier) owner() format.Owner { return format.OwnerOf(c.id) }

func (c *copier) note(err error) { c.errs.Add(err) }

// unknown notes a part that is not copied, such as a known one whose name was damaged.
// The file is then set aside, so that the part is not lost.
func (c *copier) unknown(name []byte) {
	c.note(fmt.Errorf("%w: this program does not know the part %q", ErrDamaged, name))
}

// refused says whether bbolt refuses a key or a bucket. Then the source is damaged, and
// the new file is not.
func refused(err error) bool {
	return slices.ContainsFunc([]error{berrors.ErrKeyRequired, berrors.ErrKeyTooLarge, berrors.ErrValueTooLarge,
		berrors.ErrBucketNameRequired, berrors.ErrBucketExists, berrors.ErrIncompatibleValue},
		func(is error) bool { return errors.Is(err, is) })
}

// target makes the source's bucket in the new file.
func (c *copier) target(tx *bolt.Tx) (sourceTx, error) {
	b, err := layout.Create(tx, layout.BucketSources)
	if err == nil {
		b, err = layout.Create(b, []byte(c.id))
	}
	return sourceIn(b, c.id, c.seals.to), err
}

func (c *copier) record(rw layout.Raw) {
	raw := rw.Open()
	key, r, err := c.owner().ParseRecord(rw.Key, raw)
	if err != nil {
		c.note(err)
		return
	}
	c.do(len(raw), func(_ sourceTx, a *applier) error {
		k := index.AppendKey(nil, key)
		was := keyState{k: k}
		if old := a.in.Items.Get(k); old != nil { // old pages may have a key a second time
			if _, o, err := c.owner().ParseRecord(k, old); err == nil {
				was.item, was.raw = o, bytes.Clone(old)
			}
		}
		return a.giveItem(key, was, r, raw)
	})
}

// bucket copies a bucket of boxes, and seals its values by the new file's key. It opens each
// root page only once: old pages may lead in circles, and each round would be twice as long
// as the one before.
func (c *copier) bucket(path [][]byte, ref pages.Bucket) {
	if len(path) > pages.MaxDepth {
		return
	}
	if ref.Root != 0 && c.roots[ref.Root] {
		c.note(fmt.Errorf("%w: page %d is the root of two buckets", ErrDamaged, ref.Root))
		return
	}
	if c.roots == nil {
		c.roots = map[uint64]bool{}
	}
	c.roots[ref.Root] = true
	c.do(0, func(src sourceTx, _ *applier) error { // it may be empty
		b, err := c.into(src, path)
		if err == nil && len(path) > 0 {
			err = b.SetSequence(ref.Seq)
		}
		return err
	})
	c.note(c.from.Each(ref, func(k, v []byte, sub *pages.Bucket) {
		if sub != nil {
			if !c.whole && len(path) == 1 {
				if _, known := c.m.Handlers[string(k)]; !known {
					c.unknown(k)
					return
				}
			}
			c.bucket(append(path[:len(path):len(path)], k), *sub)
			return
		}
		put := func(to *bolt.Bucket) error { return to.Put(k, v) }
		if !c.whole {
			if put = c.resealed(path, k, v); put == nil {
				return
			}
		}
		c.do(len(k)+len(v), func(src sourceTx, _ *applier) error {
			to, err := c.into(src, path)
			if err != nil {
				return err
			}
			return put(to)
		})
	}))
}

// into returns the bucket at the path, and makes it.
func (c *copier) into(src sourceTx, path [][]byte) (b *bolt.Bucket, err error) {
	if c.at != nil && len(path) == len(c.atPath) && (len(path) == 0 || &path[0] == &c.atPath[0]) {
		return c.at, nil
	}
	b = src.Root
	for _, name := range path {
		if b, err = b.CreateBucketIfNotExists(name); err != nil {
			return nil, err
		}
	}
	b.FillPercent = compactFill
	c.at, c.atPath = b, path
	return b, nil
}

// resealed opens a value of a box, and returns a function that stores it in the new file, nil
// if the value is damaged. The set's digest shows that it is missing.
func (c *copier) resealed(path [][]byte, k, v []byte) func(*bolt.Bucket) error {
	sub := ""
	if len(path) > 1 {
		sub = string(path[1])
	}
	from := layout.SealBox(c.seals.from, c.id, string(path[0]), sub)
	to := layout.SealBox(c.seals.to, c.id, string(path[0]), sub)
	plain := from.Open(k, v)
	if _, err := format.CheckSum(plain); err != nil {
		c.note(fmt.Errorf("%s: %w", path[0], err))
		return nil
	}
	return func(b *bolt.Bucket) error {
		to.Bucket = b
		return to.Put(k, plain)
	}
}

func (c *copier) do(size int, fn func(src sourceTx, a *applier) error) {
	c.todo, c.size = append(c.todo, fn), c.size+size
	if c.size >= c.limit {
		c.flush()
	}
}

// flush writes the collected work, except for entries that bbolt refuses.
func (c *copier) flush() {
	m := c.m
	var out []error
	err := c.write(func(tx *bolt.Tx) error {
		src, err := c.target(tx)
		if err != nil {
			return err
		}
		a := &applier{}
		if c.at = nil; c.m != nil {
			m = c.m.clone()
			a.m = m
		}
		if m != nil && m.Contents != contentsNone {
			if a.in, err = src.createContents(); err != nil {
				return err
			}
			a.in.Items.Bucket.FillPercent = compactFill
		}
		for _, fn := range c.todo {
			if err := fn(src, a); refused(err) {
				out = append(out, fmt.Errorf("%w: %w", ErrDamaged, err))
			} else if err != nil {
				return err
			}
		}
		return nil
	})
	c.done += int64(c.size)
	c.todo, c.size = nil, 0
	if err == nil {
		c.m = m
	}
	c.note(err)
	for _, err := range out {
		c.note(err)
	}
}

// blocks reads the blocks of a damaged file's journal.
func (c *copier) blocks(journal pages.Bucket, fn func(k, v []byte)) error {
	var errs faults.List
	errs.Add(c.from.Each(journal, func(k, v []byte, sub *pages.Bucket) {
		if sub == nil {
			fn(k, v)
			return
		}
		errs.Add(c.from.Each(*sub, func(name, v []byte, _ *pages.Bucket) {
			if bytes.Equal(name, k) {
				fn(k, v)
			}
		}))
	}))
	return errs.Err()
}

// compare returns ErrDamaged if the copy lacks something that meta counts.
func (c *copier) compare() error {
	if c.m.Items != c.was.Items || c.m.Bytes != c.was.Bytes || c.m.Noted.Unstored != c.was.Noted.Unstored {
		return fmt.Errorf("%w: the records are not those last committed", ErrDamaged)
	}
	for name, im := range c.was.Indices {
		if c.m.Indices[name].Digest != im.Digest {
			return fmt.Errorf("%w: index %s is not the one last committed", ErrDamaged, name)
		}
	}
	return nil
}
