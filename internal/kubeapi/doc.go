// Package kubeapi answers the Kubernetes API over HTTP from a [Storage]: get, list,
// watch and discovery, with the status codes, reasons, messages, versions, continue
// tokens and bookmarks of kube-apiserver 1.36. Package kubesim has a Storage in memory,
// with writes and faults. Package apifile has one over a kubewake file. The cases of
// tests/contract hold both, and a real server, to the same statements.
//
// The API is here, and the data is in the Storage. The handler parses URLs, chooses a
// form, checks parameters, and keeps the times of a watch. The Storage knows which state
// is the newest, which older states it still has, and what has changed since.
//
// # What a Storage promises
//
//   - A page is of one state, and Page.Version is the version of that state. A watch from
//     that version brings each later change.
//   - A page that names the snapshot or version of an earlier page is of the same state,
//     or the error is [ErrExpired].
//   - A watch brings all changes in the order in which the Storage has applied them. If
//     it cannot go on without a gap, the error is ErrExpired.
//   - Batch.Version is a version from which a later watch goes on. So a bookmark can
//     state it once the batch has been sent.
//
// The handler keeps no changes for a watcher. It asks the Storage for the next ones when
// the last ones have been sent. So a watcher that does not read costs no memory beyond
// one batch.
//
// # Where to look
//
//   - handler: a request's way. path and negotiate: what it asks for, in which form.
//   - storage: the interface. type and object: what a Storage serves.
//   - list, stream, room: lists, how they are sent, and the memory for them. fields: field
//     selectors.
//   - watch: the events and bookmarks of a watch.
//   - encoding, table: the forms of answers. discovery, aggregated, shortnames: types.
package kubeapi
