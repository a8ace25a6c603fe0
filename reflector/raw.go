package reflector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/kubewake/kubewake/boltstore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Compare says how relists find out what has changed. All but CompareDecoded
// need a client of a config that WrapConfig was given, and otherwise are the
// same as that.
type Compare int

const (
	// CompareAuto looks at the metadata of what a page brings before the client
	// decodes it, and leaves out what has not changed.
	CompareAuto Compare = iota
	// CompareDecoded has the client decode everything. It is for list functions
	// that make of the answers something else than lists of these objects.
	CompareDecoded
)

// errNotRaw: an answer has not the form that a list of the API has. It is asked
// for again and left to the client as it is.
var errNotRaw = errors.New("reflector: not the form of a list")

// rawBatch is how many bytes of a list are compared with the file at once.
const rawBatch = 512 << 10

// rawPage is carried by the context of a page's request. Our transport leaves
// out of the answer what is in the file already, before the client decodes it:
// an object of the same UID and version needs no more than a look at its
// metadata. The client gets a list of the others.
type rawPage struct {
	of      boltstore.Source
	compare func([]boltstore.Listed) ([]boltstore.Match, error) // nil: nothing is left out
	sent    atomic.Int64                                        // bytes of answers as they came, packed or not, 0 if they cannot be seen

	mu       sync.Mutex
	metadata *metadataFirst // nil: whole objects are asked for
	answers  int
	kept     []boltstore.Listed // what was left out
	held     int64              // most bytes of the answer, or of what was left of it and decoded, that were in memory
	err      error              // why it could not be, unless it is the link
}

type rawKey struct{}

// raw returns what carries the answer to a page's request, nil if it is
// another's to look at.
func (l *lister) raw() *rawPage {
	if l.s.o.Compare == CompareDecoded || l.s.notRaw {
		return nil
	}
	p := &rawPage{of: l.s.store.Source()}
	if l.relist.ByMetadata() {
		p.compare, p.metadata = l.relist.Compare, l.metadata()
	}
	return p
}

func (p *rawPage) in(ctx context.Context) context.Context {
	if p == nil {
		return ctx
	}
	return context.WithValue(ctx, rawKey{}, p)
}

// result is what was left out of the one answer to the page's request.
func (p *rawPage) result() ([]boltstore.Listed, error) {
	if p == nil {
		return nil, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil && p.answers > 1 {
		return nil, fmt.Errorf("%w: %d answers to one page", errNotRaw, p.answers)
	}
	return p.kept, p.err
}

// weight is what a page of so many bytes costs in memory.
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

// pageOf returns what the request carries if it is a page's that may be looked
// at.
func pageOf(req *http.Request) *rawPage {
	p, _ := req.Context().Value(rawKey{}).(*rawPage)
	if p == nil || p.compare == nil || req.Method != http.MethodGet {
		return nil
	}
	src, err := sourceOf(req.URL)
	if err != nil || src.Group != p.of.Group || src.Version != p.of.Version || src.Resource != p.of.Resource || src.Namespace != p.of.Namespace {
		return nil
	}
	return p
}

// filterRaw has the answer to a page's request filtered as it is read.
func filterRaw(p *rawPage, resp *http.Response) {
	if resp.StatusCode != http.StatusOK || len(encodings(resp.Header)) > 0 {
		return
	}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil {
		return
	}
	form := formOf(media)
	if form == nil {
		return
	}
	resp.Header.Del("Content-Length")
	resp.ContentLength = -1
	resp.Body = &filtered{from: resp.Body, p: p, form: form}
}

// formOf is what reads lists of a media type, nil if nothing does.
func formOf(media string) func(io.Reader) rawList {
	switch media {
	case "application/vnd.kubernetes.protobuf":
		return newProtoList
	case "application/json":
		return newJSONList
	}
	return nil
}

// filtered is an answer of which only the rest is read.
type filtered struct {
	from io.ReadCloser
	p    *rawPage
	form func(io.Reader) rawList
	rest *bytes.Reader
}

func (f *filtered) Close() error { return f.from.Close() }

func (f *filtered) Read(buf []byte) (int, error) {
	if f.rest == nil {
		rest, err := f.p.filter(f.form(f.from))
		if err != nil {
			return 0, err
		}
		f.rest = bytes.NewReader(rest)
	}
	return f.rest.Read(buf)
}

// rawList reads the items of a list's encoding, and makes another of some of
// them.
type rawList interface {
	// next returns an item, valid until the next call, io.EOF at the end. An
	// error that is not errNotRaw is that of the reader.
	next() (boltstore.Listed, []byte, error)
	// add puts an item, or several as next has returned them, one after the
	// other, into the other list.
	add(item []byte)
	// list is the other list. It has all but the items of the first.
	list() []byte
	// head tells, after the last item, the list's kind, and what it says of
	// itself.
	head() (kind string, about metav1.ListMeta, err error)
	// held is how many bytes of the first list to count as memory.
	held() int64
}

// decodedSize is how many times its size in an answer an object takes, decoded
// and made ready to be stored.
const decodedSize = 4

func (p *rawPage) filter(l rawList) ([]byte, error) {
	kept, err := p.sift(l)
	if err != nil {
		return nil, err
	}
	rest := l.list()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answers++
	p.kept, p.held = kept, max(decodedSize*int64(len(rest)), l.held())
	return rest, nil
}

// fail notes why the answer could not be filtered, unless it is the link.
func (p *rawPage) fail(err error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
	return err
}

// sift adds to the list what the file has not, and returns what it has.
func (p *rawPage) sift(l rawList) (kept []boltstore.Listed, err error) {
	var (
		batch []boltstore.Listed
		items []byte
		ends  []int
	)
	flush := func() error {
		found, err := p.compare(batch)
		if err != nil {
			return p.fail(err)
		}
		from := 0
		for i, l1 := range batch {
			if found[i] == boltstore.Same {
				kept = append(kept, l1)
			} else {
				l.add(items[from:ends[i]])
			}
			from = ends[i]
		}
		batch, items, ends = batch[:0], items[:0], ends[:0]
		return nil
	}
	for {
		id, item, err := l.next()
		if err == io.EOF {
			return kept, flush()
		}
		if errors.Is(err, errNotRaw) {
			err = p.fail(err)
		}
		if err != nil {
			return nil, err
		}
		batch, items = append(batch, id), append(items, item...)
		ends = append(ends, len(items))
		if len(items) >= rawBatch {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
}
