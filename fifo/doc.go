// Package fifo is the queue between a reflector.Reflector and an informer. It is written
// ahead to the file: Pop hands out only what has been committed.
//
// [Queue] is a cache.Queue and cache.QueueWithBatch. Add, Update and Delete put a change
// into a bounded batch in memory and return. The file's committer writes batch, objects,
// indices and resourceVersion in one transaction. Then Pop hands out a *boltstore.Entry
// for each change, which has the object before and after it. Nothing is coalesced, and
// nothing is handed out twice in one life of the process.
//
// Deltas that Pop hands out:
//
//	Added, Updated, Deleted  Object is a *boltstore.Entry
//	ReplacedAll              Relisted: more has been committed than is kept in memory;
//	                         read the store or its journal
//	SyncAll                  cache.SyncAllInfo: a resync is due
//
// accept.go takes changes from a Reflector, relist.go full lists. confirm.go notes what
// the server says about the state's age, and hold.go a list that confirms it. pop.go
// hands changes to the consumer. In wait.go callers wait for any of these.
package fifo
