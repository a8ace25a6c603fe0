// Package reflector stands between client-go's Reflector and the server, so
// that a Reflector goes on from the file instead of listing everything.
//
// [ListerWatcher] is a cache.ListerWatcher. It answers lists from the file, with
// none of the objects and only the version to go on from. Before it opens a watch
// at that version it asks the server for its current one. It repairs an expired
// version inside Watch, unseen by the Reflector: a relist in pages is compared with
// the file, and only what differs is journaled. docs/design/waking.md has the
// states of the link to the server, and link.go the code.
//
// [NewStandalone] puts the same under an unmodified client-go informer.
// [WrapConfig] and [Identify] find out what a client lists, without a request.
//
// The files sort by subject; the first word of a file's name is one of these:
// listerwatcher (what the Reflector calls), link (what the server has stated),
// confirm (a list that proves it), cluster (which server answers), servedform (how it
// serves objects), watch, relist (why and how often), list (one list and its pages),
// request and transport (what goes over the wire; internal/wire reads the answers),
// source (which list a client asks for), standalone (under a stock informer), state
// (what users see), options.
package reflector
