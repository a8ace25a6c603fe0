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
	// listAuto asks for metadata first if that sends less, by the sizes of
	// earlier answers.
	listAuto listMode = iota
	// listFull asks for whole objects.
	listFull
	// listMetadata asks for metadata, and then for each changed object, unless more than
	// a fifth have changed. It needs the permission to get objects. Without it, whole
	// objects are listed.
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
	// getCost is the size of the headers of one such request and answer.
	getCost = 300
)

// metadataFirst belongs to a page that asks for metadata first.
type metadataFirst struct {
	// worth says whether to get that many of a page's objects one by one.
	worth func(objects, changed int) bool
	kind  wire.Kind // of the source's objects, zero if not known yet

	sent    int64 // bytes of the metadata, as they came
	objects int
	moved   bool // an object has changed since; the watch brings it
}

// metadata returns the part of the next page that asks for metadata, nil if it asks for
// whole objects.
func (l *lister) metadata() *metadataFirst {
	if l.inFull || l.s.facts.noMetadata || l.s.link.bookmarkless() || l.s.store.Source().Form == boltstore.FormMetadata || !l.s.facts.metadataPays(l.s.o.repair, l.s.store) {
		return nil
	}
	sent, unpacked := l.s.facts.fullSizes(l.s.store)
	return &metadataFirst{kind: l.s.facts.kind, worth: func(objects, changed int) bool {
		// Single objects are not compressed.
		return changed <= (objects+4)/5 &&
			(l.s.o.repair == listMetadata || int64(changed)*(unpacked+getCost) <= int64(objects)*sent)
	}}
}

// measured adds a page's sizes to those of its list.
func (l *lister) measured(p *rawPage, unpacked int64, objects int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &l.full
	sent := p.sent.Load()
	if m := p.metadata; m != nil {
		t, sent, objects, unpacked = &l.partial, m.sent, m.objects, 0
		l.s.facts.kind = m.kind
		l.moved = l.moved || m.moved
	}
	if sent == 0 || objects == 0 {
		return
	}
	t.sent, t.unpacked, t.objects = t.sent+sent, t.unpacked+unpacked, t.objects+int64(objects)
	if p.metadata != nil {
		l.s.facts.sizes.metadata = max(t.sent/t.objects, 1)
		return
	}
	l.s.facts.sizes.sent, l.s.facts.sizes.unpacked = max(t.sent/t.objects, 1), t.unpacked/t.objects
}

// total is the sum over a list's pages.
type total struct{ sent, unpacked, objects int64 }
