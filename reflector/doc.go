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
// The first word of a file's name is its subject: listerwatcher (called by the
// Reflector), link (the version that the server has stated), confirm (a list that proves
// it; list_metadata is for relists), cluster (which server answers), servedform (how it serves objects), watch, relist
// (why and how often), list (one list and its pages), request and transport (the wire;
// internal/wire reads the answers), source (which list a client asks for), standalone
// (under a stock informer), state (for users), options.
package reflector
