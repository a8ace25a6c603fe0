package reflector

import (
	"sync/atomic"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// facts are what lists have shown in this life. They depend neither on each other nor on
// the link. Only a relist uses them, one goroutine at a time.
type facts struct {
	pageSize   int64       // in objects, fitting their size and the link
	notRaw     bool        // answers to lists are left to the client
	noMetadata bool        // the server does not answer requests for metadata
	kind       wire.Kind   // of the source's objects, zero if not known yet
	zero       atomic.Bool // the last list was at version 0, see listVersion
}

// recordSize is how many bytes an object takes in the file, 0 if there is none.
func recordSize(store *boltstore.Claimed) int64 {
	st := store.State()
	return int64(st.Bytes / max(st.Objects, 1))
}
