// Package informer is a cache.SharedIndexInformer over the file. client-go's own
// controller and Reflector run it: a reflector.ListerWatcher lists and watches for them,
// and they pop from a fifo.Queue.
//
// # Order
//
// A handler sees the changes of a key in order. While a handler is replayed the
// objects, a change to a key that the replay has not reached is left to the
// replay, but a delete of one is told at once (the watermark idea of Netflix's
// DBLog, 2019). A delete therefore comes before the Add of an object that took
// its key.
//
// # Durable handlers
//
// A handler with a name ([Informer.AddDurableHandler]) is told, in each life of
// the process, what it has not acknowledged, deletes included. Its position is in
// the file. [DurableQueue] makes a workqueue such a handler.
//
// # Differences from client-go: reads and sync
//
//   - Reads work before Run, from the moment the informer is made, and show what
//     the file holds. List decodes each object; see the README on what that costs.
//
//   - HasSynced waits for the server to confirm the state, or accepts a file that
//     is younger than Options.MaxStaleness. Without a link it stays false
//     otherwise.
//
//   - LastStoreSyncResourceVersion is stated whether or not client-go's feature
//     AtomicFIFO is on.
//
// # Differences from client-go: what handlers are told
//
//   - A new handler gets an Add for each object in the file, streamed, and a
//     delete for each object that went above the told mark: an earlier life of the
//     process may not have told it.
//
//   - A handler that is behind reads from the file's journal. That costs disk, not
//     memory, and holds up neither the watch nor other handlers.
//
//   - After an expired watch handlers are called for what has changed, not for
//     every object. The changes that a relist finds are told in no certain order
//     across keys; client-go tells deletes first.
//
//   - A changed object under an unchanged version, or without one, is told as an
//     update. An unchanged object is not, where client-go tells an update without
//     a change: a watch that is resumed may bring an event twice.
//
//   - A DELETED of an object that the file does not hold is told, as by client-go,
//     if its version is newer than all that has come before. Any other one is not
//     told: a watch that is resumed, or overlaps a list, brings deletes that were
//     told already. The same holds for versions that cannot be compared, and for a
//     final state that a transform or the codec refuses.
//     After a restart such a delete may be told that the life before would not
//     have told: the pages of the last list were of several versions, and its
//     watch had not come to the last page's. The object is gone all the same.
//
//   - A handler that is removed is owed what it has not been told, for
//     30 s. If the life ends before that, the next one tells it.
//
// # Differences from client-go: own writes
//
//   - What a program writes to the store of an informer ([boltstore.Claimed.Add],
//     Update, Delete, Replace, Transaction) is for readers only. Handlers are told
//     the server's changes as if the program had written nothing, since a
//     handler's line of versions must have no gaps over restarts.
//
//   - So the object before an update is the one that handlers were told, where
//     client-go shows what the store had. A create that the program has stored
//     first is told as Add, where client-go tells an Update. Replays and resyncs
//     show what the server showed last, where client-go shows the store.
//
//   - An own write is not stored if it is older than the object in the store:
//     reads do not step back. It gives way to the server's object once that is not
//     older. It moves LastStoreSyncResourceVersion, as in client-go, but never the
//     resume point, which State().ResourceVersion states.
//
//   - The store of an informer that has ended, or whose file is closed, refuses
//     writes with boltstore.ErrClosed, since another informer may have the source
//     by then. client-go's still takes them.
//
// # Differences from client-go: functions that fail
//
//   - An index function that fails or panics: client-go panics. Here the object is
//     stored without values of that index. The function is called again, at the
//     latest in the next life. [reflector.State].Unindexed counts such objects.
//
//   - A transform that fails on a listed object: client-go lists again and does
//     not sync until it succeeds. So does this informer, but it stores the rest
//     and goes on watching.
//
//   - A transform that fails on an object of a streamed list (WatchList) or of the
//     watch: client-go leaves the object out. This informer notes it in the file
//     and lists again. [reflector.State].Unstored counts it.
//
// # Differences from client-go: memory
//
//   - After a burst of changes (8 MiB) an informer that rests calls runtime.GC, at
//     most once a minute: Go would not collect the garbage for minutes. It does
//     not where the live heap is above 128 MiB, where a collection has been made
//     since, or with GOGC=off.
//
// # A stock informer over the file
//
// A stock informer over a [reflector.Standalone] differs from one over a server:
//
//   - A delete whose final state was missed comes with the last state that was
//     known, not in a cache.DeletedFinalStateUnknown. A watch has no way to say so,
//     and a list would tell every object again.
//
//   - Handlers are told updates without a change less often: after a link that was
//     down, and after an expired watch, the Reflector need not list.
package informer
