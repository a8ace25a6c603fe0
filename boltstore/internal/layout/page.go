package layout

import "bytes"

// Cursor walks what the file holds, in the file's order, as a bolt.Cursor does. A
// place is where something is in that order, nil at the end.
type Cursor[T any] interface {
	Seek(at []byte) (place []byte, v T) // the first that is not before at
	Next() (place []byte, v T)
}

// Page calls take with what is from the place from on, nil being the start, until take
// returns false. It returns the place of what take refused, which the next page begins
// with, in memory of its own, or nil at the end. A walk that would go round in a
// circle, as damage can make it, is an error.
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
