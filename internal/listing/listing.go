// Package listing has the types by which packages reflector and boltstore describe a server
// and its lists to each other.
package listing

import "time"

// Server describes the server that answers.
type Server struct {
	Address string
	// ClusterUID is the UID of the namespace kube-system.
	ClusterUID string
	// CA is a hash of the public key at the root of the server's certificate chain.
	CA string
}

// Progress is how far a list has come. Every page up to there has been taken.
type Progress struct {
	ResourceVersion string    `msgpack:"resourceVersion"` // of the first page
	Newest          string    `msgpack:"newest"`          // of the last page
	Continue        string    `msgpack:"continue"`        // token of the next page, "" after the last
	PageSize        int64     `msgpack:"pageSize"`        // a page size in objects that worked
	Began           time.Time `msgpack:"began"`           // when the first page was asked for
	By              Server    `msgpack:"by"`              // the server of the pages
	ServedForm      string    `msgpack:"form,omitempty"`  // of the first page, see Facts
}

// NotWritten is an error of the file, not of the server.
type NotWritten struct{ Err error }

func (e NotWritten) Error() string { return e.Err.Error() }
func (e NotWritten) Unwrap() error { return e.Err }

// Object is an object by a list's metadata.
type Object struct{ Namespace, Name, UID, ResourceVersion string }

// Key is the object's key by cache.MetaNamespaceKeyFunc.
func (o Object) Key() string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

// Match says how the file's record compares with an object of a list.
type Match int8

// Values of Match.
const (
	MatchAbsent  Match = iota // no record, or none that can be used
	MatchDiffers              // a record of another version or UID, or an unstored object
	MatchSame                 // a record of the same version and UID
)
