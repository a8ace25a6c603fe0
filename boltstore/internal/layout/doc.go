// Package layout has the buckets of a kubewake file, as typed values. It knows where
// things are and how an encrypted file seals them. Package boltstore knows their meaning,
// and package format their bytes. docs/design/file.md says how to add a bucket.
//
//	/file/header                       the file's header
//	/sources/<id>/meta                 the source's state
//	/sources/<id>/items                [Items]: item key → record
//	/sources/<id>/index/<name>         [Entries]: (value, key) → ()
//	/sources/<id>/notes                [Box]: item key → note of an unstored object
//	/sources/<id>/journal              [Blocks]: seq of its first entry → block
//	/sources/<id>/pending/<name>       [Box]: item key → pending key of a durable handler
//
// A relist writes in place. Until a first list has ended, meta says that the contents are
// partial, how far the list has come, and readers see none of them.
//
// The header and meta are values at a key. All other names are buckets, with
// the form of their keys and values.
//
// Most buckets have the sequence [Signature], which shows whose file a page belongs to.
//
// In an encrypted file values are sealed: records, notes, meta, blocks and pending keys.
// Associated data binds each to its place: it cannot be decrypted anywhere else. A meta is
// bound to being one, and names its source itself. Keys, and with them index entries, are
// as in a plain file. Sealing fails only for sizes that bbolt would refuse.
package layout
