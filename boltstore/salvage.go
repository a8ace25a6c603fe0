package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

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
	from, done, err := openDamaged(path)
	if err != nil {
		res.lost("%w", err)
		if known == nil {
			return res
		}
	} else {
		defer done()
	}
	metas := map[string]*sourceMeta{}
	for id, m := range known {
		metas[id] = m
	}
	view := func(fn func(tx *bolt.Tx) error) error {
		if from == nil {
			return nil
		}
		return contain(func() error { return from.View(fn) })
	}
	err = view(func(tx *bolt.Tx) error {
		sources := tx.Bucket(bucketSources)
		if sources == nil {
			return fmt.Errorf("%w: the sources are missing", ErrDamaged)
		}
		return walk(sources, func(k, v []byte) error {
			if id := string(k); v == nil && metas[id] == nil {
				m, err := sourceTx{sources.Bucket(k)}.meta()
				if err != nil || m.Source.ID() != id {
					return fmt.Errorf("source %s: %w", id, errors.Join(ErrDamaged, err))
				}
				metas[id] = m
			}
			return nil
		})
	})
	if err != nil {
		res.lost("%w", err)
	}
	for id, m := range metas {
		res.of += m.Items.Count
		c := &copier{to: to, id: id, m: m.clone()}
		c.m.Items, c.m.Bytes, c.m.JournalBytes = digest{}, 0, 0
		for name, im := range c.m.Indices {
			im.Digest = digest{}
			c.m.Indices[name] = im
		}
		err := view(func(tx *bolt.Tx) error {
			src, ok := openSource(tx, id)
			if !ok {
				return fmt.Errorf("%w: %s", ErrNoSource, id)
			}
			return c.copy(src)
		})
		if err == nil && from != nil {
			err = c.compare(m)
		}
		if from == nil || err != nil {
			c.m.Degraded = fmt.Sprintf("the file was damaged, %d of %d objects could be saved", c.m.Items.Count, m.Items.Count)
			res.lost("%s: %w", m.Source, errors.Join(ErrDamaged, err))
		}
		if err := c.end(); err != nil {
			res.lost("%s: %w", m.Source, err)
			continue
		}
		res.objects += c.m.Items.Count
	}
	return res
}

// openDamaged opens a file for reading that need not be sound. A truncated one
// is padded, in a copy.
func openDamaged(path string) (*bolt.DB, func(), error) {
	done := func() {}
	size, err := wantedSize(path)
	if err != nil {
		return nil, nil, err
	}
	if st, err := os.Stat(path); err != nil {
		return nil, nil, err
	} else if st.Size() < size {
		padded := path + ".padded"
		if err := errors.Join(copyFile(path, padded), os.Truncate(padded, size)); err != nil {
			return nil, nil, errors.Join(err, os.Remove(padded))
		}
		path, done = padded, func() { _ = os.Remove(padded) }
	}
	var b *bolt.DB
	err = contain(func() (err error) {
		b, err = bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: time.Second})
		return err
	})
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return b, func() { _ = contain(b.Close); done() }, nil
}

// walk calls fn for each key that can be reached, from the start and, where
// that way is barred, from the end. v is nil for a bucket. The errors are
// those of fn and of the file.
func walk(b *bolt.Bucket, fn func(k, v []byte) error) error {
	var last []byte
	var errs []error
	run := func(step func(c *bolt.Cursor, first bool) ([]byte, []byte), until []byte) error {
		return contain(func() error {
			c := b.Cursor()
			k, v := step(c, true)
			for k != nil && !(until != nil && bytes.Compare(k, until) <= 0) {
				if err := fn(k, v); err != nil {
					errs = append(errs, err)
				}
				last = bytes.Clone(k)
				k, v = step(c, false)
			}
			return nil
		})
	}
	err := run(func(c *bolt.Cursor, first bool) ([]byte, []byte) {
		if first {
			return c.First()
		}
		return c.Next()
	}, nil)
	if err == nil {
		return errors.Join(errs...)
	}
	errs = append(errs, err)
	until := last
	if until == nil {
		until = []byte{}
	}
	errs = append(errs, run(func(c *bolt.Cursor, first bool) ([]byte, []byte) {
		if first {
			return c.Last()
		}
		return c.Prev()
	}, until))
	return errors.Join(errs...)
}

// copier copies one source into a new file, a few MiB a transaction.
type copier struct {
	to   *bolt.DB
	id   string
	m    *sourceMeta
	todo []func(src sourceTx, a *applier) error
	size int
}

func (c *copier) copy(src sourceTx) error {
	var errs []error
	if items := src.gen(c.m.Generation).items; items != nil {
		errs = append(errs, walk(items, c.record))
	}
	errs = append(errs, c.journal(src.root.Bucket(bucketJournal)))
	errs = append(errs, walk(src.root, func(k, v []byte) error {
		name := string(k)
		if v != nil || name == string(bucketGen) || name == string(bucketJournal) {
			return nil
		}
		return c.bucket([][]byte{bytes.Clone(k)}, src.root.Bucket(k))
	}))
	return errors.Join(append(errs, c.flush())...)
}

func (c *copier) record(k, v []byte) error {
	key, r, err := parseRecord(k, v)
	if err != nil {
		return err
	}
	raw := bytes.Clone(v)
	return c.do(len(v), func(_ sourceTx, a *applier) error { return a.give(key, r, raw, nil) })
}

// journal copies the newest blocks, without a gap.
func (c *copier) journal(j *bolt.Bucket) error {
	if j == nil {
		return nil
	}
	return contain(func() error {
		next := c.m.Seq + 1
		cur := j.Cursor()
		for k, v := cur.Last(); k != nil; k, v = cur.Prev() {
			seq := binary.BigEndian.Uint64(k)
			if seq > c.m.Seq {
				continue // staged and never committed
			}
			drafts, err := unpackBlock(seq, v)
			if err == nil && seq+uint64(len(drafts)) != next {
				err = fmt.Errorf("journal block at %d: %w: it ends before %d, not %d", seq, ErrDamaged, seq+uint64(len(drafts)), next)
			}
			if err != nil {
				return err
			}
			next = seq
			v := bytes.Clone(v)
			err = c.do(len(v), func(src sourceTx, a *applier) error {
				b, err := src.root.CreateBucketIfNotExists(bucketJournal)
				if err != nil {
					return err
				}
				a.m.JournalBytes += uint64(len(v))
				return b.Put(u64(seq), v)
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// bucket copies a bucket as it is.
func (c *copier) bucket(path [][]byte, b *bolt.Bucket) error {
	return walk(b, func(k, v []byte) error {
		k, v = bytes.Clone(k), bytes.Clone(v)
		if v == nil {
			return c.bucket(append(path[:len(path):len(path)], k), b.Bucket(k))
		}
		return c.do(len(k)+len(v), func(src sourceTx, _ *applier) error {
			to := src.root
			for _, name := range path {
				var err error
				if to, err = to.CreateBucketIfNotExists(name); err != nil {
					return err
				}
			}
			return to.Put(k, v)
		})
	})
}

func (c *copier) do(size int, fn func(src sourceTx, a *applier) error) error {
	c.todo, c.size = append(c.todo, fn), c.size+size
	if c.size < 4<<20 {
		return nil
	}
	return c.flush()
}

func (c *copier) flush() error {
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
	return err
}

// compare says whether all is there that was.
func (c *copier) compare(m *sourceMeta) error {
	if c.m.Items != m.Items || c.m.Bytes != m.Bytes {
		return fmt.Errorf("the records are not those last committed")
	}
	for name, im := range m.Indices {
		if c.m.Indices[name].Digest != im.Digest {
			return fmt.Errorf("index %s is not the one last committed", name)
		}
	}
	return nil
}

// end writes the source's meta.
func (c *copier) end() error {
	if err := c.flush(); err != nil {
		return err
	}
	return c.to.Update(func(tx *bolt.Tx) error {
		src, _ := openSource(tx, c.id)
		return src.putMeta(c.m)
	})
}
