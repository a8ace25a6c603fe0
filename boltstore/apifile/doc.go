// Package apifile answers the Kubernetes API, read-only, from a kubewake file: get, list,
// watch and discovery, so that kubectl, client-go and any other client can read it.
// Informers of this process may keep the file up to date, or it may be open for reading
// only. docs/design/api.md has the reasons and what differs from a server.
//
// # What is served
//
// A type is served if the file has a source of it. One source answers a request. It must
// have all namespaces or the request's, and all its selectors must be among the
// request's. Several sources are never combined, since they have no common version. One
// object by name is also served from a source that has it and whose selectors the request
// lacks. If no source covers the request, the answer is 503 and names the sources that there
// are: a client tries again, and does not conclude that there are no objects.
//
// If several sources cover a request, one that an informer keeps up to date answers, then
// the one that was confirmed last, then one of all namespaces, then a typed one. Of a
// group's versions discovery prefers the one that is kept up to date. A source of metadata
// answers only if there is no other. Sources of shards, and sources whose versions are not
// numbers, are not served. Secrets are served only if [Options.Secrets] is set.
//
// # Versions
//
// resourceVersions are the server's own. So a client may go on at the server with a
// version from the file, and at the file with one from the server.
//
//   - A list shows one state, and has that state's version. A limit is not applied. While
//     a long list is sent, the file undoes later changes by the journal.
//   - A list or get with a version waits up to three seconds until the file has reached
//     it, and then gets 504. A list of an exact version, and a watch from one, get 410 if
//     the journal no longer reaches back to it.
//   - A watch brings every change that the file has committed since its version, in the
//     file's order, and keeps none in memory. It ends in order when the program stops
//     keeping its source.
//   - A list from the server (a relist) brings several changes at once, not in the order of
//     versions. Objects with the list's own version come last, and a bookmark with that
//     version follows. Deletes among them carry the version of the state before. A client
//     that resumes in between gets them again. If the pages of a list had several versions,
//     open watches get 410.
//   - After a restored server, another cluster, another Go type of the program, or lost
//     contents, all earlier versions get 410, and so do open watches. A source that has not
//     been listed yet, or has lost records by damage, gets 429 until it is listed.
//
// # Age
//
// Each answer about objects says how old its data is. The header Age has the seconds
// since the server last confirmed the source, Kubewake-Confirmed the time of that. Above
// [Options.WarnAfter], or if it is not known, a Warning header says so, which kubectl prints.
package apifile
