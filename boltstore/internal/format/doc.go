// Package format has the form of a kubewake file's records, journal blocks and small
// values. It turns bytes into structs and back, and does nothing else. Bytes that differ
// from those written give [faults.ErrDamaged]. No bytes make it panic or exhaust memory.
//
// docs/design/file.md says how to change the form, and what becomes of older files.
//
// A [Record] is
//
//	byte 0      record version (2)
//	byte 1      codec id (package codec)
//	bytes 2-5   CRC-32C, little-endian, over the source's ID, bytes 0-1, the object's key and everything after byte 5
//	then        msgpack: resourceVersion, UID, time stored (unix ns), seq at which this UID was first stored,
//	            index values as [name, [values]] pairs, the key (empty when the item key holds it),
//	            how the payload is packed: 0 not, 1 zstd with dictionary 1, which is in package pack;
//	            unless 0, its size unpacked
//	then        payload, to the end
//
// A journal block ([Owner.PackBlock]) is
//
//	byte 0      block version (1)
//	bytes 1-4   CRC-32C, little-endian, over the source's ID, the seq and everything after byte 4
//
// then        uvarint number of entries, uvarint time of the last one (unix ns), uvarint size of
// what follows when unpacked
//
//	then        zstd frames of entries
//
// and an entry in it is
//
//	type ('A', 'U' or 'D'), time (uvarint unix ns), key, new record, previous record as a diff from the new one
//
// where key, record and diff each have a uvarint length before them. A [Diff] is
// the length of the record (uvarint) and then, until that length is reached,
//
//	uvarint number of bytes to copy from the base, varint how far to move on in the base,
//	uvarint number of bytes of the record's own, and these bytes
//
// A small value ([Encode]) is msgpack and its CRC-32C, little-endian.
package format
