// Package fifo is the queue between a Reflector and an informer. It is written
// ahead to the file: Pop hands out only what has been committed.
//
// [Queue] is a cache.Queue and cache.QueueWithBatch. Add, Update and Delete put a
// change into a bounded batch in memory and return. The file's committer writes
// batch, objects, indices and resourceVersion in one transaction. Then Pop hands
// out an *boltstore.Entry for each change, with the object before beside the one
// after. Nothing is coalesced, and nothing is handed out twice in one life of the
// process.
//
// Deltas that Pop hands out:
//
//	Added, Updated, Deleted  Object is a *boltstore.Entry
//	ReplacedAll              Relisted: more has been committed than is kept in memory;
//	                         read the store or its journal
//	SyncAll                  cache.SyncAllInfo: a resync is due
//
// accept.go has what a Reflector gives, relist.go full lists, confirm.go what the
// server has said of the state's age, hold.go lists that confirm it, pop.go what a
// consumer takes, and wait.go the callers that wait for any of these.
package fifo
