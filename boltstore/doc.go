// Package boltstore keeps informers' caches in one bbolt file. If a process dies at any
// moment, the next one finds all objects, index entries and versions.
//
// A [DB] is one open file. It holds many sources; a [Source] is what one informer
// mirrors. [DB.View] returns a [Store], which reads a source. [DB.Claim] returns a
// [Claimed], a cache.Indexer that also writes the source.
//
// # Reads
//
// A claimed source whose objects fit Options.ObjectMemory is read from memory, at the
// speed of client-go's store, once they are loaded. Others are decoded from the file.
// Either way a read sees all of a commit or nothing of it, and no read steps back.
// The journal has the state at an earlier commit ([Moment], [Store.PageAt]) and the
// changes after it ([Store.EntriesAfter]).
//
// # One writer
//
// A source has one writer: the server's queue, or the program. While a queue feeds the
// source, writes by the program return [ErrFed]. Before that they are stored and journaled
// like the server's. They take the resume point away, so the informer lists.
//
// # What a crash leaves
//
// A commit is one bbolt transaction: records, index entries, journal block,
// resourceVersion and digests are all there or none of them. Changes that were not
// committed are lost from memory, and the watch brings them again.
//
// A relist too large for one commit is several. What it has committed before a crash
// stays, under the old resourceVersion, and the next relist goes on. A first list is
// hidden until its last commit.
//
// # Where to look
//
// The first word of a file's name is its subject. Opening: open, encryption, aside, and
// salvage, which replaces a damaged file. The open file: db, file, recount, maintain,
// compact, copy, collect, check, snapshot, stats, fallback. A source: claim, source, meta, clock,
// newerserver. A
// commit: commit, entry, journal, note, pack, index. A full list: relist. Reads: store,
// resident.
// Handlers: pending, told. The form of the file: internal/layout, internal/format.
package boltstore
