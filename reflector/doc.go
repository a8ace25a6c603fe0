// Package reflector keeps a source in the file up to date with its server, as client-go's
// Reflector does a store, but it goes on from the file instead of listing everything.
//
// [Reflector.Run] is a loop: before it opens a watch at the file's version, it asks the
// server for its current version. It follows the watch. If that version has expired, or the
// file differs from the server, it relists in pages, compares them with the file, and
// journals only the differences. docs/design/waking.md has the states of the link to the
// server, and link.go the code.
//
// [NewStandalone] does the same below an unmodified client-go informer. [WrapConfig] and
// [Identify] find out, without a request, what a client lists.
//
// # Where to look
//
// The first word of a file's name is its subject:
//
//   - reflector: the loop. standalone: the same for a stock informer.
//   - link: the version that the server has stated. confirm: a list that proves it.
//   - cluster: which server answers. servedform: how it serves objects.
//   - watch: the stream. relist: why and how often everything is listed.
//   - list: one list and its pages.
//   - request, transport: the wire; internal/wire reads the answers.
//   - source: which list a client asks for. state, options: for users.
package reflector
