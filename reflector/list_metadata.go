package reflector

import (
	"errors"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// listMode says what relists ask the server for. It needs a client whose config
// WrapConfig has seen, and has no effect under Options.DecodeAll.
type listMode int

const (
	// listAuto is listMetadata if the objects are large, and listFull otherwise.
	listAuto listMode = iota
	// listFull asks for whole objects.
	listFull
	// listMetadata asks for metadata, and then for each changed object, unless they are many.
	// It needs the permission to get objects. Without it, whole objects are listed.
	listMetadata
)

var (
	// errInFull: this page and the rest of its list must be asked for in full.
	errInFull = errors.New("reflector: better in full")
	// errNoMetadata: the server's answer is useless. It is not asked for metadata again.
	errNoMetadata = errors.New("reflector: no metadata first")
)

const (
	// parallelGets is how many objects of a page are asked for at a time.
	parallelGets = 8
	// mostGets is how many objects of a page are asked for one by one, and never more than a
	// fifth of them: single objects are not compressed.
	mostGets = 500
	// largeObject is how large a record is of objects that are listed by metadata: that has some
	// 100 to 400 bytes, and each changed object costs a request.
	largeObject = 768
)

// metadataFirst belongs to a page that asks for metadata first.
type metadataFirst struct {
	kind    wire.Kind // of the source's objects, zero if not known yet
	objects int
	moved   bool // an object has changed since; the watch brings it
}

// metadataOnly belongs to a page that asks for nothing but metadata. All objects count as
// kept, and the client gets an empty list.
type metadataOnly struct {
	apiVersion, kind string // of the source's objects, as the client knows them
	soon             bool   // the page is given up once a bookmark would have come
	version          string // of the list
}

// metadata returns the part of the next page that asks for metadata, nil if it asks for
// whole objects.
func (l *lister) metadata() *metadataFirst {
	small := l.s.o.repair == listAuto && recordSize(l.s.store) < largeObject
	if l.inFull || l.s.o.repair == listFull || small || l.s.facts.noMetadata || l.s.link.bookmarkless() ||
		l.s.store.Source().Form == boltstore.FormMetadata {
		return nil
	}
	return &metadataFirst{kind: l.s.facts.kind}
}

// learn notes what a page that asked for metadata has shown.
func (l *lister) learn(p *rawPage) {
	if p == nil || p.metadata == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.s.facts.kind = p.metadata.kind
	l.moved = l.moved || p.metadata.moved
}
