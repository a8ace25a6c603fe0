// Package serve lets callers in to the API of a file, and passes on to the real server
// what the file does not have.
//
// A request goes through limits, authentication, authorisation and a route:
//
//	limits          connections, requests, watches, sizes and times
//	authentication  who calls: this user, or somebody else whom the server knows
//	authorisation   reads of the file, of others: the real server is asked
//	route           the file, the real server, or both (discovery)
//
// # Who calls
//
// Whoever has this user's id on the unix socket, or the token of the loopback address, is
// this user. No read of theirs is authorised, since they may open the file. What goes to
// the real server has the credentials of this process, which are theirs.
//
// Anybody else comes over TLS, with a client certificate of a given CA or a token that
// the real server accepts (TokenReview). Each read of the file is authorised by the real
// server (SubjectAccessReview). What goes to the real server has the caller's own token.
// A certificate cannot be passed on: there the process impersonates its user and groups,
// and refuses callers who want to impersonate somebody else.
//
// # Offline
//
// Answers of reviews are kept. While the server cannot be asked, a token and a read are
// allowed if the server allowed the same within [LinkOptions.Offline], and denied
// otherwise. So nobody gains a right while the link is down, and who lost one loses it
// here after that time.
package serve
