package layout

import "bytes"

// Cursor walks entries of a bucket in the order of their keys, as a bolt.Cursor does. A
// place is an entry's key, nil at the end.
type Cursor[T any] interface {
	Seek(at []byte) (place []byte, v T) // the first one at or after at
	Next() (place []byte, v T)
}

// Page calls take with the entries from the place from on, until take returns false. nil
// is the start. It returns the place of the entry that take refused, with which the next
// page begins. The place is a copy, nil at the end. If the walk would go round in a
// circle because of damage, Page returns an error.
func Page[T any](c Cursor[T], from []byte, take func(at []byte, v T) bool) (next []byte, err error) {
	at, v := c.Seek(from)
	for at != nil && take(at, v) {
		at, v = c.Next()
	}
	if at != nil && bytes.Compare(at, from) <= 0 {
		return nil, OutOfOrder(at)
	}
	return bytes.Clone(at), nil
}
