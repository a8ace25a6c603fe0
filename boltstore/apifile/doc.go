// Package apifile answers the Kubernetes API, read-only, from a kubewake file: get, list,
// watch and discovery, so that kubectl, client-go and any other client can read it. The
// file may be one that informers of this process keep up to date, or one that is open for
// reading only.
//
// # What is served
//
// A type is served if the file has a source of it. A request is answered from one source,
// whole or of its namespace, whose selectors are all among the request's. What a source was
// selected by can be asked for, whatever the file keeps of its objects. Several are
// never put together, since they have no common version. What no source covers gets 503
// with the sources that there are, so a client tries again and is not told that nothing
// is there. A type without a source is not in discovery, and gets 404. Of several sources
// that cover a request, one that an informer keeps up to date answers, then the one
// confirmed in the latest hour, then a whole one, then a typed one, then an unstructured
// one. Of two that are kept up to date, the whole one answers. Discovery prefers
// the version of a group that is kept up to date, then the one confirmed in the latest hour.
// A source of metadata only answers if there is no other, as PartialObjectMetadata and as
// Table. Whole objects get 406 then. Sources of shards, and with versions that are not numbers, are not served.
// Secrets are served only if [Options.Secrets] is set, and get 403 otherwise.
//
// Objects come as JSON, YAML, protobuf where the source is typed, PartialObjectMetadata,
// and Table, which has a server's columns for the usual kinds.
//
// What is served is what the server has shown. A program's own writes over it are not.
//
// # Versions
//
// resourceVersions are the server's own. So a client may go on from one at the server,
// and at the file with one that the server gave.
//
//   - A list is of one state, and states that state's version. Pages that follow by
//     continue tokens are of the same state: the file takes back, with the journal, what
//     has changed since. If the journal no longer reaches back, the token gets 410, and
//     the answer has a token for the rest as it is now.
//   - A list or get with a version waits up to three seconds until the file has reached
//     it, and then gets 504. An exact version, and a watch from one, get what the journal
//     still has, and 410 below.
//   - A watch brings every change that the file has committed since its version, in the
//     file's order. It holds no changes in memory for a watcher that does not read: it
//     goes on from the file, and ends with 410 once the journal has been trimmed beyond
//     it.
//   - A watch ends in order when the program stops to keep its source. The next one finds
//     the source that answers from then on, and gets 429 until that has been listed.
//   - A list of the server (a relist) brings the file several changes at once, in no order
//     of versions. Watchers get them as they are in the file, but what has the list's own
//     version last. Deletes among them carry the version of the state before, and a bookmark
//     with the list's version follows the last one. A client that resumes in between gets
//     them again, and ends equal. If the pages of a list were of several versions, open
//     watches get 410.
//   - A bookmark states the version up to which the watcher has everything. They come as
//     from the server, if the file's version has moved.
//   - A restored server, another cluster, another Go type of the program, and contents
//     that were lost begin anew: each version from before gets 410, open watches too.
//   - A file of an earlier release does not say where its lists are. A watch of it begins
//     at its version, not before, until the program has committed once.
//
// A source that has not been listed yet gets 429, as a server that fills its cache, and
// so does one that lacks records after damage, until it is listed again. No list without
// them is served: a client would take it for deletes.
//
// # Age
//
// Each answer about objects says how old its data is: the header Age has the seconds since
// the server last confirmed the source, and Kubewake-Confirmed the time. If the age is
// above [Options.WarnAfter] or not known, a Warning header says so, which kubectl prints.
package apifile
