// Package informer is a cache.SharedIndexInformer over the file. A reflector.Reflector
// fills a fifo.Queue, and the informer pops from it.
//
// A handler is told the changes of a key in order. A new handler first gets a replay: an
// Add for each object in the file. Until the replay has reached a key, its changes are
// left to the replay, except that a delete is told at once (the watermark idea of
// Netflix's DBLog, 2019). So a delete comes before the Add of an object that took its
// key.
//
// A handler with a name ([Informer.AddDurableHandler]) is told, in each life of the
// process, each key whose changes it has not acknowledged, deletes included. These pending
// keys are in the file. [DurableQueue] makes such a handler of a workqueue.
//
// # Differences from client-go
//
// docs/differences.md has all of them, with their reasons. Those to know first:
//
//   - Reads work before Run: the file has the objects. List decodes each one, unless
//     they fit boltstore.Options.ObjectMemory.
//   - HasSynced waits for the server, since the file may be old, or accepts a file
//     within Options.MaxStaleness.
//   - A new handler gets an Add for each object, streamed, and the deletes that an earlier
//     life may not have told.
//   - A relist and a restart tell only what has changed. No object steps back to an older
//     version.
//   - While it runs, the store refuses writes: client-go's cache.MutationCache shows a program
//     what it has just written to the server.
//   - A slow handler reads from the file: it holds up no watch and takes no memory, but
//     makes the file grow.
//   - If damage has taken an object from the file, a plain handler is not told of its
//     delete, since nothing shows that it was there. A durable one starts over.
//
// A stock informer over a [reflector.Standalone] is told the last known state of an
// object whose final state was missed, since a watch cannot say that it was. It is told
// fewer updates without a change, since its Reflector need not list.
//
// # Where to look
//
// Files sort by subject:
//
//   - informer, options, newinformer: the SharedIndexInformer, and the function that
//     makes one for a manager or a factory. Packages factory, dynamicinformer,
//     metadatainformer and controllerruntime make more; internal/generic and
//     internal/stated serve them.
//   - handler, handler_listener, handler_absent: plain handlers, their goroutine, cursor
//     and replay; the told mark, and those that were removed or are still to come, which
//     hold it. internal/backlog has the entries that they read.
//   - durable: durable handlers, their events, and the workqueue that is one.
//     durable_handler.go does the work.
//   - fresh: callers that wait for a young cache.
//   - health, lag, metrics: for operators. Package metrics has the collector.
package informer
