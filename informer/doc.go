// Package informer is a cache.SharedIndexInformer over the file: client-go's
// controller and Reflector, fed by a reflector.Source, popping from a
// fifo.Journal.
//
// What differs from client-go's informer:
//
//   - Reads work before Run, from the moment the informer is made, and show
//     what the file holds.
//   - Handlers get an Add for each object in the file, streamed, and a delete
//     for each object that went above the told mark: what an earlier life of
//     the process may not have told. HasSynced waits for the server to confirm
//     the state, or for Options.MaxStaleness.
//   - A handler that is behind reads from the file's journal. It costs disk,
//     not memory, and holds up neither the watch nor other handlers.
//   - An expired watch is repaired by a diff: handlers are called for what has
//     changed, not for every object.
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
