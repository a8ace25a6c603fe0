package reflector

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// rawPage travels in the context of a page's request. Before the client decodes the
// answer, the transport removes the objects that the file already has. The client gets a
// list of the others.
type rawPage struct {
	of      boltstore.Source
	compare wire.Compare // nil: nothing is left out

	mu       sync.Mutex
	metadata *metadataFirst // nil: whole objects are asked for
	only     *metadataOnly  // not nil: nothing but metadata is wanted
	answers  int
	kept     []listing.Object // the objects that were left out
	held     int64            // most memory that the answer took, see wire.Sifted
	err      error            // why nothing could be left out, unless it is the link
}

type rawKey struct{}

// raw returns the rawPage that the next page's request carries, nil if its answer is left
// to the client.
func (l *lister) raw() *rawPage {
	if l.s.o.DecodeAll || l.s.facts.notRaw {
		return nil
	}
	p := &rawPage{of: l.s.store.Source()}
	if l.relist.ByMetadata() {
		p.compare, p.metadata = l.relist.Compare, l.metadata()
	}
	return p
}

// in returns the context of the page's request.
func (p *rawPage) in(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, rawKey{}, p)
}

// result returns the objects left out of the one answer to the page's request.
func (p *rawPage) result() ([]listing.Object, error) {
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.answers > 1 {
		return nil, fmt.Errorf("%w: %d answers to one page", wire.ErrForm, p.answers)
	}
	return p.kept, p.err
}

// onlyOf returns the version of the list of metadata that has answered, if one has.
func (p *rawPage) onlyOf() (version string, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.only.version, p.answers > 0
}

// weight is how much memory a page of this many bytes takes.
func (p *rawPage) weight(size int64) int64 {
	if p == nil {
		return size
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers == 0 {
		return size
	}
	return p.held
}

// pageOf returns the page whose request this is, nil if there is none.
func pageOf(req *http.Request) *rawPage {
	p, _ := req.Context().Value(rawKey{}).(*rawPage)
	if p == nil || req.Method != http.MethodGet {
		return nil
	}
	src, err := sourceOf(req.URL)
	if err != nil || src.Group != p.of.Group || src.Version != p.of.Version || src.Resource != p.of.Resource ||
		src.Namespace != p.of.Namespace {
		return nil
	}
	return p
}

// read has the answer to the page's request sifted as it is read.
func (p *rawPage) read(resp *http.Response) {
	if p.compare == nil {
		return
	}
	wire.Filter(resp, p.same, func(s wire.Sifted, err error) {
		if err != nil {
			if errors.Is(err, wire.ErrForm) {
				_ = p.fail(err)
			}
			return
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		p.answers++
		p.kept, p.held = s.Kept, s.Held
	})
}

// same compares the listed objects with the file.
func (p *rawPage) same(listed []listing.Object) ([]listing.Match, error) {
	found, err := p.compare(listed)
	if err != nil {
		return nil, p.fail(err)
	}
	return found, nil
}

// fail notes why the answer could not be filtered, unless it is the link.
func (p *rawPage) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err
}
