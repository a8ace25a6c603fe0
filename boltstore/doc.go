// Package boltstore keeps what informers cache in one bbolt file, so that a
// process that dies at any moment finds, when it starts again, every object,
// every index entry and the resourceVersion they belong to.
//
// A [DB] is one file of one process. It holds many sources, a source being one
// list/watch ([Source]). Claiming a source gives a [Store], which is the
// cache.Indexer over its objects.
//
// The form of the file is described in packages boltstore/internal/layout (its
// buckets), boltstore/internal/format (records and journal blocks) and index (item
// keys and index entries).
//
// # Own writes
//
// A program may write to a source that a queue feeds, as caches with optimistic
// updates do. Readers see such an own write at once. Handlers are told what the
// server says, as if the program had written nothing: the file keeps the record that
// the server showed last, the base, beside the program's object, which gives way to
// the server's once that is not older. An own write never moves the resume point.
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
