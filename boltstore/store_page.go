package boltstore

import (
	"bytes"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/index"
)

// Page is a run of objects in the order of the file, which is that of their item keys.
type Page struct {
	Keys    []string
	Objects []any
	// Next is where the next page begins, nil after the last one.
	Next []byte
	// Seq is the number of the last journal entry that the page contains.
	Seq uint64
	// Epoch is that of the objects; see Upstream.Epoch.
	Epoch uint64
	// Synced is false, and the page empty, before the first list, and while the objects
	// are outdated.
	Synced bool
}

// Before says whether key comes before the page that begins at next; nil is the end.
func Before(key string, next []byte) bool {
	return next == nil || bytes.Compare(index.AppendKey(nil, key), next) < 0
}

// Page reads objects from the given place on; nil is the start. It returns at most n
// objects, and about 256 KiB in the file, all from one commit. If n is less than one, it
// returns one. An object is in one page only, whatever happens between pages.
func (s *Store) Page(from []byte, n int) (p Page, err error) {
	return s.reader.pageFor(from, n, false)
}

// ServerPage is Page for handlers. It is not synced before the first list, and after the
// program has stored objects itself not before the next one. It waits for objects that are
// being loaded into memory: handlers and readers then have the same ones.
func (s Delivery) ServerPage(from []byte, n int) (p Page, err error) {
	s.memory.await()
	return s.reader.pageFor(from, n, true)
}

// Latest says whether ServerPage would still return that page: nothing that handlers are
// told has been committed since.
func (s Delivery) Latest(p Page) bool {
	m := s.metaNow()
	return p.Synced && m.Seq == p.Seq && m.Epoch == p.Epoch
}

// pageFor is Page, or ServerPage.
func (rd *reader) pageFor(from []byte, n int, server bool) (p Page, err error) {
	err = rd.read(func(m *sourceMeta, _ sourceTx, g contentsTx) error {
		p.Seq, p.Epoch, p.Synced = m.Seq, m.Epoch, g.Items != nil && (m.listed() || !server)
		if !p.Synced {
			return nil
		}
		raws, next, err := rd.pageOf(g, from, n, pageBytes)
		if err != nil {
			return err
		}
		p.Next = next
		p.Keys, p.Objects, err = rd.decodeAll(raws, false)
		return err
	})
	return p, rd.s.health.explained(err)
}

// pageBytes bounds the records of a page, as they are stored. Decoded they take about
// four times as much.
const pageBytes = 256 << 10

// unpacked is about how many bytes a record of that size has once it is unpacked: packed
// ones four times as many, and often more.
func (rd *reader) unpacked(stored int) int {
	if rd.s.db.opts.Compression != CompressionNone {
		return 4 * stored
	}
	return stored
}

// pageOf returns the records of a page of about so many bytes, and where the next page begins.
func (rd *reader) pageOf(g contentsTx, from []byte, n, most int) (raws []layout.Raw, next []byte, err error) {
	size := 0
	next, err = layout.Page(g.Items.Cursor(), from, func(_ []byte, r layout.Raw) bool {
		if len(raws) >= max(n, 1) || size >= most {
			return false
		}
		raws = append(raws, r)
		size += rd.unpacked(len(r.Stored))
		return true
	})
	return raws, next, err
}
