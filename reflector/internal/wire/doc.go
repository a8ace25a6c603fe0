// Package wire reads the answers of list requests before client-go decodes
// them, in protobuf and in JSON.
//
// [Filter] leaves out of an answer what the caller has already: an object of
// the same UID and resourceVersion needs no more than a look at its metadata.
// [ReadMetadata], [ReadObject] and [List] make a list of a list of metadata
// and of single objects.
//
// An answer that has not the form of the API's lists leads to [ErrForm]. The
// caller asks again and leaves the answer to client-go.
package wire
