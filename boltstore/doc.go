// Package boltstore keeps informers' caches in one bbolt file. If a process dies at any
// moment, the next one finds all objects, index entries and versions.
//
// A [DB] is one open file with many sources; a [Source] is what one informer mirrors.
// [DB.View] returns a [Store], which reads a source, and [DB.Claim] a [Claimed], a
// cache.Indexer that also writes it.
//
// # Reads
//
// A claimed source whose objects fit Options.ObjectMemory is read from memory, once they
// are loaded, others from the file. A read sees all of a commit or nothing of it, and no
// read steps back.
// The journal has earlier states ([Store.PageAt]) and the changes since ([Store.EntriesAfter]).
//
// # One writer
//
// A source has one writer: the server's queue, or the program. While a queue feeds it,
// writes by the program return [ErrFed]. Before that they are stored like the server's,
// and take the resume point away, so the informer lists.
//
// # What a crash leaves
//
// A commit is one bbolt transaction: records, index entries, journal block,
// resourceVersion and digests are all there or none of them. The watch brings again what
// was not committed.
//
// A relist too large for one commit is several. What it has committed before a crash
// stays, under the old resourceVersion. A first list is hidden until it ends.
//
// # Where to look
//
// The first word of a file's name is its subject. Opening: open, encryption, aside, and
// salvage, which replaces a damaged file. The open file: db, file, recount, maintain,
// compact, copy, collect, check, snapshot, stats, fallback. A source: claim, source, meta,
// clock, newerserver. A commit: commit, entry, journal, note, pack, index. A full list:
// relist. Reads: store, resident. Handlers: pending, told. The form of the file:
// internal/layout, internal/format.
package boltstore
