// Package durable tells handlers the changes that they have not acknowledged, across
// restarts.
//
// A [Handler] has a name and a position in the file. It is told in this order: first the
// keys that the file has parked for it. Then the pages of an unfinished replay, each
// after the entries that the page's snapshot contains. Then the journal behind its
// cursor.
//
// One goroutine fills the queues of keys, and Options.Workers goroutines tell the tasks
// in them. An acknowledgement is a call that returns nil, or Delivery.End(nil). It
// settles the key in the position, and tells the committer (boltstore.Handler.Changed).
// The source's next commit, or one within FlushInterval, asks for the position within its
// transaction (Position, called by boltstore/durable_commit.go). It calls Persisted once
// readers see the transaction.
//
// Each part of a Handler has one job:
//
//	position   how far it has come
//	queues     what was taken in and not acknowledged, by key, and its telling:
//	           with memory, which bounds that, and retries, which wait for a time
//	parking    what the commit under way moves from memory to the file
//	unparking  the walk over what the file has parked
//	replay     the walk over all objects
//	startOver  where it is in starting over
//
// One mutex guards them all. docs/design/handlers.md says what handlers may rely
// on.
package durable
