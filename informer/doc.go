// Package informer is a cache.SharedIndexInformer over the file: client-go's
// controller and Reflector, fed by a reflector.Source, popping from a
// fifo.Journal.
//
// # Differences from client-go
//
//   - Reads work before Run, from the moment the informer is made, and show
//     what the file holds.
//
//   - Handlers get an Add for each object in the file, streamed, and a delete
//     for each object that went above the told mark: what an earlier life of
//     the process may not have told. HasSynced waits for the server to confirm
//     the state, or for Options.MaxStaleness.
//
//   - A handler that is behind reads from the file's journal. It costs disk,
//     not memory, and holds up neither the watch nor other handlers.
//
//   - An expired watch is repaired by a diff: handlers are called for what has
//     changed, not for every object.
//
//   - A DELETED of an object that the file does not hold is told, as by
//     client-go, if its version is newer than all that has come before. Any
//     other one is not told: a watch that is resumed, or overlaps a list, brings
//     deletes that have been told. Versions that cannot be compared, and a final
//     state that a transform or the codec refuses, count as such.
//     After a restart one may be told that the life before would not have told:
//     where the last list was of pages of several versions, and its watch had
//     not come to the last page's. Such a delete is of an object that is gone.
//
//   - The changes that a relist finds are told in no certain order across keys.
//     client-go tells deletes first.
//
//   - A handler that is removed is owed what it has not been told, for
//     Options.HandlerGrace, and by the next life if this one ends before.
//
//   - What a program writes to the store of an informer ([boltstore.Store.Add],
//     Update, Delete, Replace, Transaction) is for readers only. Handlers are
//     told the server's changes as if the program had written nothing: the
//     object before an update is the one that they were told of, where client-go
//     shows what the store had; a create that the program has stored first is
//     told as Add, where client-go tells an Update; replays and resyncs show
//     what the server showed last, where client-go shows the store. The reason
//     is that a handler's line of versions must have no gaps over restarts.
//
//   - Such a write is not stored if it is older than the object in the store:
//     reads do not step back. It gives way to the server's object once that is
//     not older. It moves LastStoreSyncResourceVersion, as in client-go, but
//     never the resume point, which State().ResourceVersion states.
//
//   - The store of an informer that has ended, or whose file is closed, refuses
//     writes with boltstore.ErrClosed, since another informer may have the
//     source by then. client-go's still takes them.
//
//   - A changed object under an unchanged version, or without one, is told as an
//     update. An unchanged one is not, where client-go tells an update without a
//     change: a watch that is resumed may bring an event twice.
//
//   - After a burst of changes (8 MiB) an informer that rests calls runtime.GC,
//     at most once a minute: Go would not collect what is left for minutes. It
//     does not where the live heap is above 128 MiB, where a collection has been
//     made since, or with GOGC=off.
//
//   - LastStoreSyncResourceVersion is stated whether or not client-go's feature
//     AtomicFIFO is on.
//
//   - An index function that fails or panics: client-go panics. Here the object
//     is stored without values of that index. The function is called again, at
//     the latest in the next life. [reflector.State].Unindexed counts such objects.
//
//   - A transform that fails on a listed object: client-go lists again and does
//     not sync until it succeeds. So does this informer, but it stores the rest
//     and goes on watching. Of a list that it streams (WatchList), and of the
//     watch, client-go leaves out what the transform refuses; this informer notes
//     it in the file and lists again. [reflector.State].Unstored counts it.
//
// A stock informer over a [reflector.Standalone] differs in this:
//
//   - A delete whose final state was missed comes with the last state that was
//     known, not in a cache.DeletedFinalStateUnknown. A watch has no way to say
//     so; to have the Reflector list would tell every object again.
//
//   - Handlers are told updates without a change less often: after a link that
//     was down, and after an expired watch, the Reflector need not list.
//
// # Durable handlers
//
// A handler with a name ([Informer.AddDurableHandler]) is told, in each life of
// the process, what it has not acknowledged, deletes included. Its position is in
// the file. [DurableQueue] makes a workqueue such a handler.
//
// # Order
//
// A handler sees the changes of a key in order. While it is replayed, a change
// to a key that the replay has not reached is left to the replay, but a delete
// of one is told at once (the watermark idea of Netflix's DBLog, 2019). A
// delete therefore comes before the Add of an object that took its key.
package informer
