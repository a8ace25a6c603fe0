package boltstore

import (
	"bytes"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// unionCursor walks the keys that have a record or a base, in the file's order.
type unionCursor struct {
	items, own     layout.ItemCursor
	itemAt, ownAt  []byte
	item, base     layout.Raw
	hasOwn, atItem bool
	atOwn          bool
}

// cursor walks the keys of a generation that has items.
func (g genTx) cursor() *unionCursor {
	c := &unionCursor{items: g.Items.Cursor()}
	if g.Own != nil {
		c.own, c.hasOwn = g.Own.Cursor(), true
	}
	return c
}

// Seek goes to the first key that is not before the place at, which it returns,
// nil at the end. item and base are what is there, without in where there is
// none.
func (c *unionCursor) Seek(at []byte) (place []byte, item, base layout.Raw) {
	c.itemAt, c.item = c.items.Seek(at)
	if c.hasOwn {
		c.ownAt, c.base = c.own.Seek(at)
	}
	return c.here()
}

// SeekAfter goes to the first key behind the place at, nil being the start.
func (c *unionCursor) SeekAfter(at []byte) (place []byte, item, base layout.Raw) {
	c.itemAt, c.item = c.items.SeekAfter(at)
	if c.hasOwn {
		c.ownAt, c.base = c.own.SeekAfter(at)
	}
	return c.here()
}

// Next goes to the next key.
func (c *unionCursor) Next() (place []byte, item, base layout.Raw) {
	if c.atItem {
		c.itemAt, c.item = c.items.Next()
	}
	if c.atOwn {
		c.ownAt, c.base = c.own.Next()
	}
	return c.here()
}

func (c *unionCursor) here() (place []byte, item, base layout.Raw) {
	c.atItem, c.atOwn = c.itemAt != nil, c.ownAt != nil
	if c.atItem && c.atOwn {
		switch bytes.Compare(c.itemAt, c.ownAt) {
		case -1:
			c.atOwn = false
		case 1:
			c.atItem = false
		}
	}
	if c.atItem {
		place, item = c.itemAt, c.item
	}
	if c.atOwn {
		place, base = c.ownAt, c.base
	}
	return place, item, base
}

// shown is what the server showed last of a key under a cursor, without in where
// that is nothing.
func shown(item, base layout.Raw) layout.Raw {
	switch {
	case base.In == nil:
		return item
	case bytes.Equal(base.Open(), noBase):
		return layout.Raw{}
	}
	return base
}

// keyOfEither is the key of what is under a cursor.
func keyOfEither(item, base layout.Raw) (string, error) {
	if item.In != nil {
		return keyOf(item)
	}
	return keyOf(base)
}
