// Package wire reads the answers of list requests before client-go decodes
// them, in protobuf and in JSON.
//
// [Filter] removes objects that the caller already has from an answer: to recognise an
// object of the same UID and resourceVersion, its metadata is enough. [ReadMetadata],
// [ReadObject] and [List] make a list from a list of metadata and from single objects.
//
// If an answer does not have the form of the API's lists, the error is [ErrForm]. The
// caller then asks again and leaves the answer to client-go.
package wire
