// Package pages reads the pages of a bbolt file without bbolt.
//
// bbolt trusts a file. Pages that point in a circle, which lost writes can leave, make it
// hang or exhaust memory. So this package checks a file before bbolt opens it, and reads
// a damaged file without bbolt.
//
// The form is that of bbolt 1.5 (internal/common/page.go). A page begins with
//
//	uint64 id, uint16 flags, uint16 number of elements, uint32 number of overflow pages
//
// and its elements follow, each with its own position in the page:
//
//	branch: uint32 position, uint32 key size, uint64 page id
//	leaf:   uint32 flags, uint32 position, uint32 key size, uint32 value size
//
// A position counts from the element. A bucket is a leaf element whose value is
//
//	uint64 root page, uint64 sequence, and a page without an id if the root is 0
package pages
