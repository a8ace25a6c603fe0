// Package reflector stands between client-go's Reflector and the server, so
// that a Reflector goes on from the file instead of listing everything.
//
// [ListerWatcher] is a cache.ListerWatcher. It answers lists from the file: without
// objects, with only the version to go on from. Before it opens a watch at that version,
// it asks the server for its current version. It repairs an expired version inside Watch,
// unseen by the Reflector: it relists in pages, compares them with the file, and journals
// only the differences. docs/design/waking.md has the states of the link to the server,
// and link.go the code.
//
// [NewStandalone] does the same for an unmodified client-go informer. [WrapConfig] and
// [Identify] find out, without a request, what a client lists.
//
// # Where to look
//
// The first word of a file's name is its subject:
//
//   - listerwatcher: what the Reflector calls. standalone: the same for a stock informer.
//   - link: the version that the server has stated. confirm: a list that proves it.
//   - cluster: which server answers. servedform: how it serves objects.
//   - watch: the stream. relist: why and how often everything is listed.
//   - list: one list and its pages.
//   - request, transport: the wire; internal/wire reads the answers.
//   - source: which list a client asks for. state, options: for users.
package reflector
