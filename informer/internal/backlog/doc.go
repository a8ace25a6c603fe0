// Package backlog keeps the newest committed entries in memory, for handlers
// that read at their own pace.
//
// The informer appends the entries that it pops. A reader says from which seq on it still
// needs entries ([Backlog.Needs]), takes them ([Backlog.From]), and waits for more
// ([Backlog.Tick], then [Backlog.Wait]). Entries that no reader needs are dropped. So are
// the oldest ones beyond the budget, which readers then read from the file.
package backlog
