// Package fifo is the queue between a Reflector and an informer, written ahead
// to the file: what Pop hands out has been committed.
//
// [Queue] is a cache.Queue and cache.QueueWithBatch. Add, Update and Delete
// put a change into a bounded batch in memory and return; the file's committer
// writes batch, objects, indices and resourceVersion in one transaction; then
// Pop hands out an *boltstore.Entry for each change, the object before beside
// the one after. Nothing is coalesced, nothing is handed out twice in one life
// of the process, and what was handed out is in the file whatever happens
// next.
//
// Deltas that Pop hands out:
//
//	Added, Updated, Deleted  Object is a *boltstore.Entry
//	ReplacedAll              Relisted: more has been committed than is kept in memory;
//	                         read the store or its journal
//	SyncAll                  cache.SyncAllInfo: a resync is due
package fifo
