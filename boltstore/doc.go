// Package boltstore keeps what informers cache in one bbolt file, so that a
// process that dies at any moment finds, when it starts again, every object,
// every index entry and the resourceVersion they belong to.
//
// A [DB] is one file of one process. It holds many sources, a source being one
// list/watch ([Source]). Claiming a source gives a [Store], which is the
// cache.Indexer over its objects.
//
// # The file
//
//	/file                              header: format, boot id, clean-shutdown mark
//	/sources/<id>/meta                 identity, history, generation, resourceVersion, told mark, digests
//	/sources/<id>/gen/<n>/items        item key → record
//	/sources/<id>/gen/<n>/index/<name> (value, key) → ()
//	/sources/<id>/gen/<n>/own          item key → record that the server showed last of a key that the program has
//	                                   written since (its base); one zero byte where it has shown none
//	/sources/<id>/gen/<n>/notes        item key → what of an object could not be stored, and why
//	/sources/<id>/gen/<n>/progress     how far a first list that has not ended has come
//	/sources/<id>/journal              seq of its first entry → one compressed block per commit
//	/sources/<id>/handlers/<name>      mark (8 bytes), msgpack of a durable handler's position, CRC-32C
//	/sources/<id>/parked/<name>        item key → what the handler has not acknowledged, collapsed
//	/sources/<id>/dicts                version → dictionary that payloads are packed by
//	/aside/<time>/<id>                 the contents of a source that another cluster's have replaced, or that nobody claims
//
// Package index defines item keys and entries, package boltstore/internal/format
// records and journal blocks. Numbers in bucket keys are big-endian.
//
// # Own writes
//
// A program may write to a Store that a queue feeds, as caches with optimistic
// updates do. Readers see such an own write at once. Handlers are told what the
// server says, as if the program had written nothing: the bucket own has the
// key's base, which is what handlers know of it. Replays, entries and relists go
// by the base. The program's object gives way to the server's once that is not
// older. An own write never moves the resume point.
//
// An own write before the first list is for readers, too. It lies in a generation
// beside the one that the list stages. A Store without a queue, which its program
// fills, keeps no bases: there Replace and Bookmark state the resume point. Meta
// counts bases by a digest, and dictionaries that bases are packed by are kept.
//
// # What meta says of versions and times
//
// Four fields are about resourceVersions: form is the sign of the form in which
// the server served the objects, listed the version of the last list, moved
// whether an earlier list had another version, and stands whether there were
// changes that moved no version.
//
// A confirmation (confirmedBy) is a wall time, the boot in which it came, the time
// since that boot, and whether the clock was known to be right. The times when
// sources and handlers were last used have the same (claimedBy, seenBy). For the
// times of journal entries, dated says from which entry on they are by one clock:
// one that was right, or one that nobody has set in its boot.
//
// Field noted counts notes.
//
// # What a crash leaves
//
// All of a commit is one bbolt transaction: items, index entries, journal block,
// resourceVersion and digests are there together or not at all.
//
// A relist too large for one transaction is staged in a generation of its own and
// in journal blocks above the committed seq. Meta points at neither until the last
// transaction, and the next claim removes what a crash leaves of them. The stage
// of a source's first list stays, with its progress, which is written in the
// transactions that bring the pages: the next relist goes on from there.
//
// The file itself is made under a temporary name and renamed.
package boltstore
