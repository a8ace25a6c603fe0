// Package apifile answers the Kubernetes API, read-only, from a kubewake file: get, list,
// watch and discovery, so that kubectl, client-go and any other client can read it.
// Informers of this process may keep the file up to date, or it may be open for reading
// only.
//
// # What is served
//
// A type is served if the file has a source of it. One source answers a request. It must
// have all namespaces or the request's, and all its selectors must be among the
// request's. Several sources are never combined, since they have no common version. One
// object by name is also served from a source that has it and whose selectors the request
// lacks. If no source covers the request, the answer is 503 and names the sources that there
// are. So a client tries again, and does not conclude that there are no objects. A type
// without a source is not in discovery, and gets 404.
//
// If several sources cover a request, one that an informer keeps up to date answers, then
// the one that was confirmed last, then one of all namespaces, then a typed one. Of a
// group's versions discovery prefers the one that is kept up to date; one that the program no
// longer keeps gets 503. A source of metadata answers only if there is no other, as
// PartialObjectMetadata and as Table; whole objects then get 406. Sources of shards, and
// sources whose versions are not numbers, are not served. Secrets are served only if
// [Options.Secrets] is set, and get 403 otherwise.
//
// Objects come as JSON, YAML, PartialObjectMetadata, and Table with a server's columns
// for the usual kinds. Typed sources also have protobuf. They are served as the server has
// shown them.
//
// # Versions
//
// resourceVersions are the server's own. So a client may go on at the server with a
// version from the file, and at the file with one from the server.
//
//   - A list shows one state, and has that state's version. A limit is not applied, so
//     there are no continue tokens; one from elsewhere gets 410. While a long list is sent,
//     the file undoes later changes by the journal.
//   - A list or get with a version waits up to three seconds until the file has reached
//     it, and then gets 504. A list of an exact version, and a watch from one, get 410 if
//     the journal no longer reaches back to it.
//   - A watch brings every change that the file has committed since its version, in the
//     file's order. It keeps no changes in memory for a watcher that does not read. Such
//     a watch goes on from the file, and ends with 410 once the journal has been trimmed
//     beyond it.
//   - A watch ends in order when the program stops keeping its source, or begins to keep
//     another one in place of one that it does not keep. The next watch finds the source
//     that answers from then on, and gets 429 until that has been listed.
//   - A list from the server (a relist) brings the file several changes at once, not in
//     the order of versions. Watchers get them in the file's order, except that objects
//     with the list's own version come last. Deletes among them carry the version of the
//     state before. A bookmark with the list's version follows the last change. A client
//     that resumes in between gets them again, and ends up with the same objects. If the
//     pages of a list had several versions, open watches get 410.
//   - A bookmark states the version up to which the watcher has everything. Bookmarks
//     come as from the server, if the file's version has moved.
//   - After a restored server, another cluster, another Go type of the program, or lost
//     contents, all earlier versions get 410, and so do open watches. A list of at least a
//     version that the restored server has not reached again gets 504. Once the server has
//     reached it, nothing tells it from the new one of that number, here as at the server.
//
// A source that has not been listed yet gets 429, as at a server that fills its cache. So
// does a source that has lost records by damage, until it is listed again: a client would
// take a list without them for deletes.
//
// # Age
//
// Each answer about objects says how old its data is. The header Age has the seconds
// since the server last confirmed the source, Kubewake-Confirmed the time of that. An
// informer of this process knows it before the file does. If the age is above
// [Options.WarnAfter] or not known, a Warning header says so, which kubectl prints.
//
// # Where to look
//
// handler has the options and the headers of an answer, fresh the reads that wait for the
// server. storage chooses the source, list reads its pages, and watch its changes. Package
// kubeapi has the rest of the API.
package apifile
