// Package informer is a cache.SharedIndexInformer over the file. client-go's own
// controller and Reflector run it: a reflector.ListerWatcher lists and watches for them,
// and they pop from a fifo.Queue.
//
// A handler sees the changes of a key in order. While a handler is replayed the
// objects, a change to a key that the replay has not reached is left to the
// replay, but a delete of one is told at once (the watermark idea of Netflix's
// DBLog, 2019). A delete therefore comes before the Add of an object that took
// its key.
//
// A handler with a name ([Informer.AddDurableHandler]) is told, in each life of
// the process, what it has not acknowledged, deletes included. Its position is in
// the file. [DurableQueue] makes a workqueue such a handler.
//
// # Differences from client-go
//
// docs/differences.md has the details.
//
//   - Reads work before Run: the file has the objects. List decodes each one, unless
//     they fit boltstore.Options.ObjectMemory.
//   - HasSynced waits for the server, since the file may be old, or accepts a file
//     within Options.MaxStaleness.
//   - LastStoreSyncResourceVersion is stated with and without AtomicFIFO: the file
//     has it.
//   - LastStoreSyncResourceVersion moves by a bookmark alone when that is written.
//   - A list that may be read but not watched is read once, if it states a version:
//     polling it would be a storm of lists.
//   - Version 0 is none: only client-go's fake source states it.
//   - A new handler gets an Add for each object, streamed, since they need not fit
//     into memory, and deletes that an earlier life may not have told.
//   - A handler that is not durable is not told the delete of an object that damage has
//     taken from the file, since nothing knows of it. A durable one starts over.
//   - A slow handler reads from the file: that holds up neither watch nor memory. The
//     file grows meanwhile.
//   - A relist tells only what has changed, which the file knows, in no certain
//     order across keys.
//   - A changed object under an unchanged version is an update. An unchanged object
//     is not told again, since a watch that is resumed may bring an event twice.
//   - A DELETED of an object that the file does not hold is told only if its version
//     is newer than all before, for the same reason.
//   - A change older than the stored object is not told: nothing steps back.
//   - Another UID under the same key is told as a delete and an Add, since it is
//     another object. The delete has no final state, which was missed.
//   - A handler that is removed is owed what it has not been told for 30 s, so that
//     a program that removes its handlers while it ends loses nothing.
//   - Own writes to the store are for readers only, since a handler's line of
//     versions must have no gaps over restarts: the object before an update is the
//     one that handlers were told, and replays and resyncs show what the server showed.
//   - An own write that is older than the stored object is not stored: reads do not
//     step back.
//   - The store of an informer that has ended refuses writes, since another informer
//     may have the source.
//   - An index function that fails leaves the object out of that index: a panic would
//     come again at each start.
//   - An object of another type than the example's, listed or returned by a transform,
//     is not stored, and the informer does not sync: the file keeps one type.
//   - A transform that fails on a listed object does not hold up the others: those
//     are stored at once.
//   - A transform that fails on an object of the watch is noted, and the object
//     listed again: after a restart nobody else would.
//   - A handler that panics, where that does not end the process, counts as told and
//     synced: the panic is no reason to wait for ever.
//   - KUBE_CACHE_MUTATION_DETECTOR watches what handlers are told, and the objects of a
//     source in memory: not what is decoded for one read.
//   - After a burst of changes runtime.GC is called once: Go would keep the garbage
//     for minutes.
//
// A stock informer over a [reflector.Standalone] is told the last known state of an
// object whose final state was missed, since a watch has no way to say so, and fewer
// updates without a change, since its Reflector need not list.
package informer

// Where to look: files sort by subject.
//   - informer, options, newinformer: the SharedIndexInformer, and what makes one for a
//     manager or a factory. Packages factory, dynamicinformer, metadatainformer and
//     controllerruntime make more; internal/generic and internal/stated serve them.
//   - handler, handler_listener, handler_absent: plain handlers, their goroutine, cursor
//     and replay; those that were removed or are still to come. internal/backlog has the
//     entries that they read.
//   - durable: durable handlers, their events, and the workqueue that is one. What they
//     do is in internal/durable.
//   - fresh: callers that wait for a young cache.
//   - health, lag, metrics: what operators see. Package metrics has the collector.
//   - garbage: the collection after a burst.
