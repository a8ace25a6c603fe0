package reflector

import (
	"sync/atomic"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// facts are what lists have shown in this life. They depend neither on each other nor on
// the link. Only a relist uses them, one goroutine at a time.
type facts struct {
	pageSize   int64 // in objects, fitting their size and the link
	notRaw     bool  // answers to lists are left to the client
	noMetadata bool  // the server does not answer requests for metadata
	sizes      sizes
	kind       wire.Kind   // of the source's objects, zero if not known yet
	zero       atomic.Bool // the last list was at version 0, see listVersion
}

// sizes are bytes for each object, 0 if not known.
type sizes struct {
	sent, unpacked int64 // in full lists
	metadata       int64 // in lists of metadata, as sent
}

// fullSizes are the sizes of a full list. Before one has been seen, they are estimated
// from the file: answers of more than 128 KiB are compressed to about a fifth.
func (f *facts) fullSizes(store *boltstore.Claimed) (sent, unpacked int64) {
	if f.sizes.sent > 0 {
		return f.sizes.sent, f.sizes.unpacked
	}
	st := store.State()
	if st.Objects == 0 {
		return 0, 0
	}
	unpacked = int64(st.Bytes / st.Objects)
	if st.Bytes < compressed {
		return unpacked, unpacked
	}
	return unpacked / 5, unpacked
}

// leastFull is how large objects must be, as sent in a list, before metadata is tried.
// Metadata takes some 100 to 400 bytes, a whole pod 800 in protobuf.
const leastFull = 768

// metadataPays says whether to ask for metadata first. Metadata should be less than half
// of the full list, since each changed object costs a request on top.
func (f *facts) metadataPays(repair listMode, store *boltstore.Claimed) bool {
	sent, _ := f.fullSizes(store)
	switch repair {
	case listFull:
		return false
	case listMetadata:
		return true
	}
	if f.sizes.metadata > 0 {
		return 2*f.sizes.metadata < sent
	}
	return sent >= leastFull
}
