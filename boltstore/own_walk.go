package boltstore

import (
	"bytes"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// unionCursor walks the keys that have a record or a base, in the order of item keys.
type unionCursor struct {
	items, own            layout.ItemCursor
	item, base            layout.Raw
	hasOwn, atItem, atOwn bool
}

// cursor walks the keys of a generation that has items.
func (g genTx) cursor() *unionCursor {
	c := &unionCursor{items: g.Items.Cursor()}
	if g.Own != nil {
		c.own, c.hasOwn = g.Own.Cursor(), true
	}
	return c
}

// pair is the record at a key, the base of an own write, or both. The one that is missing
// has In nil.
type pair struct{ item, base layout.Raw }

// Seek goes to the first item key that is not before at. It returns the item key, nil at
// the end, and its pair.
func (c *unionCursor) Seek(at []byte) (k []byte, w pair) {
	_, c.item = c.items.Seek(at)
	if c.hasOwn {
		_, c.base = c.own.Seek(at)
	}
	return c.here()
}

// Next is Seek to the next item key.
func (c *unionCursor) Next() (k []byte, w pair) {
	if c.atItem {
		_, c.item = c.items.Next()
	}
	if c.atOwn {
		_, c.base = c.own.Next()
	}
	return c.here()
}

func (c *unionCursor) here() (k []byte, w pair) {
	c.atItem, c.atOwn = c.item.Key != nil, c.base.Key != nil
	if c.atItem && c.atOwn {
		switch bytes.Compare(c.item.Key, c.base.Key) {
		case -1:
			c.atOwn = false
		case 1:
			c.atItem = false
		}
	}
	if c.atItem {
		k, w.item = c.item.Key, c.item
	}
	if c.atOwn {
		k, w.base = c.base.Key, c.base
	}
	return k, w
}

// shown is the record that the server showed last at the key under a cursor. In is nil if
// it showed none.
func shown(item, base layout.Raw) layout.Raw {
	switch {
	case base.In == nil:
		return item
	case bytes.Equal(base.Open(), noBase):
		return layout.Raw{}
	}
	return base
}

// key is the key of the record, or of the base if there is no record.
func (w pair) key() (string, error) {
	if w.item.In != nil {
		return keyOf(w.item)
	}
	return keyOf(w.base)
}
