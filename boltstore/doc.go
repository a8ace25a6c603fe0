// Package boltstore keeps what informers cache in one bbolt file. If a process dies at
// any moment, the next one finds every object and index entry, with their
// resourceVersion.
//
// A [DB] is one file of one process. It holds many sources; a source is what one
// informer mirrors ([Source]). [DB.View] gives a [Store], which reads a source.
// [DB.Claim] gives a [Claimed], which is the cache.Indexer that writes it, too.
//
// The form of the file is described in boltstore/internal/layout (buckets),
// boltstore/internal/format (records, journal blocks) and index (keys, index entries).
//
// # Reads
//
// A claimed source whose objects fit Options.ObjectMemory is read from memory, at the
// speed of client-go's store, once they are loaded. Others are decoded from the file.
// Both show the same: a read sees all of a commit or nothing of it, and no read shows
// an earlier state than a read before it. What was committed up to a moment, and what
// followed it, is read by the journal ([Moment], [Store.PageAt], [Store.EntriesAfter]).
//
// # Own writes
//
// A program may write to a source that a queue feeds, as caches with optimistic updates
// do. Readers see such an own write at once. Handlers are told what the server says, as
// if there were no own write. So the file keeps the base, the record that the server
// showed last, beside the program's object. The server's object replaces the program's
// once it is not older. An own write never moves the resume point.
//
// # What a crash leaves
//
// A commit is one bbolt transaction: records, index entries, journal block,
// resourceVersion and digests are all there or none of them. Changes that were not
// committed are lost from memory, and the watch brings them again.
//
// A relist too large for one transaction is staged in its own generation, and in
// journal blocks above the committed seq. Meta points at neither until the last
// transaction, and the next claim removes what a crash leaves of them. The stage of a
// source's first list stays, with its progress, and the next relist goes on from there.
// The file itself is made under a temporary name and renamed.
package boltstore

// Where to look: files sort by subject. The first word of a file's name is one of these.
//   - db, options, errors, stats: what callers see of the open file.
//   - open, encryption, salvage, aside, fallback: opening a file; what happens to one
//     that cannot be used.
//   - file, heal, mend, maintain, compact, collect, check, snapshot: the open file, its
//     maintenance, copies of it.
//   - claim, source, meta, clock: what is written about a source; which clock dated it.
//   - commit, entry, journal, note, pack, index: the life of a commit, from a change to
//     its record, index entries, journal block and notes.
//   - store: the reads of a source, and the writes of callers without a queue.
//   - resident: the objects that are in memory.
//   - own: what a program wrote itself, over what the server shows.
//   - relist: the life of a relist: turns, pages, comparison, stage, last commit.
//   - durable: durable handlers: positions, replay, parked keys. told: the told mark.
