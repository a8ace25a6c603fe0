// Package reflector stands between client-go's Reflector and the server, so
// that a Reflector goes on from the file instead of listing the world.
//
// [ListerWatcher] is a cache.ListerWatcher. It answers lists from the file: none of
// the objects, only the version to go on from. It opens watches at that
// version, after it has asked the server for its current one, and repairs an
// expired version inside Watch, unseen by the Reflector: a paged list is
// compared with the file and only what differs is journaled.
//
// [WrapConfig] and [Identify] tell which list/watch a ListerWatcher is,
// without a request.
package reflector
