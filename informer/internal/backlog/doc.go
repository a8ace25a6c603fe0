// Package backlog keeps the newest committed entries in memory, for handlers
// that read at their own pace.
//
// The informer appends what it pops. A reader says from which seq on it still
// needs entries ([Backlog.Needs]), takes them ([Backlog.From]), and waits for
// more ([Backlog.Tick], then [Backlog.Wait]). Entries that no reader needs are
// dropped, and so are the oldest ones beyond the budget: those are read from the
// file.
package backlog
