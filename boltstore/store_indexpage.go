package boltstore

import (
	"bytes"
	"fmt"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// IndexPage is Page for the objects that have the value under the index, in the file's
// order. The index must be complete.
func (s *Store) IndexPage(name, value string, from []byte, n int) (p Page, err error) {
	if _, err := s.indexing().indexer(name); err != nil && !s.viewed {
		return p, fmt.Errorf("boltstore: %s: %w", s.source, err)
	}
	s.indexing().awaitTried(name)
	err = s.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
		p.Seq, p.Epoch, p.Synced = m.Seq, m.Epoch, g.Items != nil
		if g.Items == nil {
			return nil
		}
		if !m.Indices[name].Complete || !s.indexing().built(m, name) {
			return fmt.Errorf("the file has no complete index %q", name)
		}
		b := g.Indices.Open(name)
		if b == nil {
			return nil // no object has a value
		}
		var raws []layout.Raw
		size := 0
		prefix := index.Prefix(nil, value)
		if from == nil {
			from = prefix
		}
		if !bytes.HasPrefix(from, prefix) {
			return fmt.Errorf("the page of index %q begins at a place that is not of its value", name)
		}
		c := b.Cursor()
		k, v := c.Seek(from)
		for ; k != nil && bytes.HasPrefix(k, prefix) && len(raws) < max(n, 1) && size < 1<<20; k, v = c.Next() {
			_, key, err := index.ParseEntry(k, v)
			if err != nil {
				return fmt.Errorf("index %s: %w: %v", name, ErrDamaged, err)
			}
			r, ok := g.Items.Find(index.AppendKey(nil, key))
			if !ok {
				return fmt.Errorf("index %s: %w: it lists %q, which is missing", name, ErrDamaged, key)
			}
			raws = append(raws, r)
			size += len(r.Stored)
		}
		if k != nil && bytes.HasPrefix(k, prefix) {
			p.Next = bytes.Clone(k)
		}
		p.Keys, p.Objects, err = s.reading().decodeListed(raws, false, name, []string{value})
		return err
	})
	return p, s.explained(err)
}
