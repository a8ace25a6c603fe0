// Package serve lets callers use the API of a file, and passes requests that the file
// cannot answer on to the real server.
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
// A caller with this user's id on the unix socket, or with the token of the loopback
// address, is this user. Reads of this user are not authorised, since the user may open
// the file. Requests that go to the real server have the credentials of this process,
// which are the user's.
//
// Any other caller comes over TLS, with a client certificate of a given CA or a token
// that the real server accepts (TokenReview). The real server authorises each read of the
// file (SubjectAccessReview). Requests that go to the real server have the caller's own
// token. A certificate cannot be passed on: for it the process impersonates the user and
// groups, and refuses callers that want to impersonate somebody else.
//
// # Offline
//
// Answers of reviews are kept. While the server cannot be asked, a token and a read are
// allowed if the server allowed the same within [LinkOptions.Offline], and denied
// otherwise. So nobody gains a right while the link is down, and a right that was taken
// away is lost here after that time.
//
// # Where to look
//
//   - server: the addresses, and what serves at each. limits and stream: places and times.
//   - caller, token, certificates, kubeconfig: who calls.
//   - review: what the server allows a caller.
//   - route: whether the file or the server answers. A [File] passes a read on if it does
//     not have the objects. file: a file of this process, and one that is shared.
//   - link: requests that are passed on. identity: which cluster the server is of. outage:
//     while it does not answer.
//   - discovery, selfreview: answers to which file and server both contribute.
package serve
