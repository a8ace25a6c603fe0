package boltstore

import (
	"fmt"

	"github.com/kubewake/kubewake/index"
	"github.com/kubewake/kubewake/internal/listing"
)

// Holds compares listed objects with the file, at one commit. It returns those that the
// file lacks or has in another version. Objects that could not be stored are among
// these. only says whether the file has exactly the given number of objects besides those of
// the keys in but.
func (s Upstream) Holds(listed []listing.Object, objects uint64, but []string) (
	lacking []listing.Object, only bool, err error,
) {
	err = s.view(func(m *sourceMeta, src sourceTx) error {
		g := src.contents()
		if g.Items == nil {
			lacking = listed
			return nil
		}
		unstored := s.mayNote()
		for _, l := range listed {
			if is, err := match(s.coder.owner, g, unstored, l); err != nil || is != listing.MatchSame {
				lacking = append(lacking, l)
			}
		}
		for _, key := range but {
			if v, _ := g.Items.Find(index.AppendKey(nil, key)); v.In != nil {
				objects++
			}
		}
		only = m.Items.Count == objects
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("boltstore: compare %s with a list: %w", s.name, err)
	}
	return lacking, only, nil
}

// Knows says whether the file has, at the change's key, the object that the change is
// about. An earlier object with a note that a later one could not be stored counts, too.
// Where there is only a note, a transform may have given the object another key before.
func (s Feed) Knows(c *Change) (yes bool, err error) {
	err = s.view(func(m *sourceMeta, src sourceTx) error {
		g, k := src.contents(), index.AppendKey(nil, c.key)
		raw, n := g.Items.Get(k), g.notes.get(k)
		if n != nil {
			yes = raw != nil || n.Record != nil
			return nil
		}
		if raw == nil {
			return nil
		}
		_, is, err := s.coder.owner.ParseRecord(k, raw)
		yes = err == nil && is.UID == c.uid
		return err
	})
	return yes, s.health.note(err)
}

// ByMetadata says whether metadata is enough to recognise an object of a list. It is
// not with a key function of the program's own.
func (s Upstream) ByMetadata() bool { return s.coder.metaKeys }
