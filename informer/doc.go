// Package informer is a cache.SharedIndexInformer over the file. client-go's own
// controller and Reflector run it: a reflector.ListerWatcher lists and watches for them,
// and they pop from a fifo.Queue.
//
// A handler is told the changes of a key in order. A new handler first gets a replay: an
// Add for each object in the file. Until the replay has reached a key, its changes are
// left to the replay, except that a delete is told at once (the watermark idea of
// Netflix's DBLog, 2019). So a delete comes before the Add of an object that took its
// key.
//
// A handler with a name ([Informer.AddDurableHandler]) is told, in each life of the
// process, all changes that it has not acknowledged, deletes included. Its position is in
// the file. [DurableQueue] makes such a handler of a workqueue.
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
//   - A bookmark alone moves LastStoreSyncResourceVersion only once it is written.
//   - A list that may be read but not watched is read once, if it states a version:
//     polling it would be a storm of lists.
//   - Version 0 is none: only client-go's fake source states it.
//   - A new handler gets an Add for each object, streamed, since the objects need not fit
//     into memory, and deletes that an earlier life may not have told.
//   - If damage has taken an object from the file, a plain handler is not told of its
//     delete, since nothing shows that it was there. A durable one starts over.
//   - A slow handler reads from the file: it holds up no watch and takes no memory, but
//     makes the file grow.
//   - A relist tells only changes, which the file knows, in no certain order across keys.
//   - A changed object under an unchanged version is an update. An unchanged object
//     is not told again, since a watch that is resumed may bring an event twice.
//   - A DELETED of an object that the file does not have is told only if its version is
//     newer than all before, for the same reason.
//   - A change older than the stored object is not told: nothing steps back.
//   - Another UID under the same key is told as a delete and an Add, since it is another
//     object. The delete has no final state, since that was missed.
//   - After a handler is removed, its untold changes are kept for 30 s, so that a program
//     that removes its handlers while it ends loses nothing.
//   - Own writes to the store are for readers only, since the versions that a handler is
//     told must have no gaps over restarts. The object before an update is the one that
//     handlers were told. Replays and resyncs show the server's objects.
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
//   - If a transform fails on an object of the watch, that is noted and the object listed
//     again: after a restart nothing else would bring it.
//   - A handler that panics counts as told and synced, if that does not end the process:
//     the panic is no reason to wait for ever.
//   - KUBE_CACHE_MUTATION_DETECTOR watches the objects that handlers are told, and those
//     of a source in memory, but not objects decoded for one read.
//   - After a burst of changes runtime.GC is called once: Go would keep the garbage
//     for minutes.
//
// A stock informer over a [reflector.Standalone] is told the last known state of an
// object whose final state was missed, since a watch cannot say that it was. It is told
// fewer updates without a change, since its Reflector need not list.
package informer

// Where to look: files sort by subject.
//   - informer, options, newinformer: the SharedIndexInformer, and the function that
//     makes one for a manager or a factory. Packages factory, dynamicinformer,
//     metadatainformer and controllerruntime make more; internal/generic and
//     internal/stated serve them.
//   - handler, handler_listener, handler_absent: plain handlers, their goroutine, cursor
//     and replay; the told mark, and those that were removed or are still to come, which
//     hold it. internal/backlog has the entries that they read.
//   - durable: durable handlers, their events, and the workqueue that is one.
//     internal/durable does the work.
//   - fresh: callers that wait for a young cache.
//   - health, lag, metrics: for operators. Package metrics has the collector.
//   - garbage: the collection after a burst.
