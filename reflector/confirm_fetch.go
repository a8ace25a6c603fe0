package reflector

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// template travels in the context of a watch. The transport notes the request in it. So
// the same objects can be listed with the same rights and selectors, and without another
// token of the client's rate limit.
type template struct {
	of    boltstore.Source
	noted chan struct{} // closed once the request is noted
	open  chan struct{} // closed once the watch is open

	mu  sync.Mutex
	req *http.Request // nil: the transport has not seen the watch
	t   *transport
}

type templateKey struct{}

// noteTemplate notes a watch's request.
func (t *transport) noteTemplate(req *http.Request) {
	m, _ := req.Context().Value(templateKey{}).(*template)
	if m == nil || req.Method != http.MethodGet {
		return
	}
	src, err := sourceOf(req.URL)
	if err != nil || src.Group != m.of.Group || src.Version != m.of.Version || src.Resource != m.of.Resource ||
		src.Namespace != m.of.Namespace {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.req == nil {
		close(m.noted)
	}
	m.req, m.t = req, t
}

func newTemplate(of boltstore.Source) *template {
	return &template{of: of, noted: make(chan struct{}), open: make(chan struct{})}
}

func (m *template) known() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.req != nil
}

// pageAsk asks for a page of metadata.
type pageAsk struct {
	objects int64  // the wanted size of the page
	version string // the list must be no older; "": it is of the present
	token   string // continue token; "": the first page
	soon    bool   // it is given up if it takes longer than a bookmark
}

// pageAnswer is a page of metadata.
type pageAnswer struct {
	listed []listing.Object
	about  metav1.ListMeta
	size   int64         // bytes, unpacked
	took   time.Duration // from the request to the answer's end
	waited bool          // it was asked for callers of WaitForFresh
}

// list asks for a page of metadata of the watched objects.
func (m *template) list(ctx context.Context, ask pageAsk) (a pageAnswer, err error) {
	m.mu.Lock()
	req, t := m.req.Clone(ctx), m.t
	m.mu.Unlock()
	accept, as := accepted(req.Header.Get("Accept"))
	if accept == "" || as != "" && as != wire.PartialKind { // the latter is a watch of metadata
		return a, fmt.Errorf("%w: the client accepts %q", errNoMetadata, req.Header.Get("Accept"))
	}
	req.Header.Set("Accept", accept)
	q := req.URL.Query()
	for _, of := range []string{"watch", "resourceVersion", "resourceVersionMatch", "timeout", "timeoutSeconds",
		"allowWatchBookmarks", "sendInitialEvents"} {
		q.Del(of)
	}
	q.Set("limit", strconv.FormatInt(ask.objects, 10))
	switch {
	case ask.token != "":
		q.Set("continue", ask.token)
	case ask.version != "":
		q.Set("resourceVersion", ask.version)
		q.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	}
	req.URL.RawQuery = q.Encode()
	var began time.Time
	resp, err := t.gate.roundTrip(req, func(req *http.Request) (*http.Response, error) {
		return notePulse(func(req *http.Request) (*http.Response, error) {
			began = time.Now()
			return t.next.RoundTrip(req)
		}, req)
	})
	if err != nil {
		return a, err
	}
	noteAnswer(req, resp)
	body := &timed{ReadCloser: resp.Body}
	if ask.soon {
		body.until = began.Add(bookmarkAfter)
	}
	resp.Body = body
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%w: list metadata: %s", errNoMetadata, resp.Status)
	}
	a.listed, a.about, _, err = wire.ReadMetadata(resp)
	a.size, a.took = body.size, time.Since(began)
	return a, err
}

// timed is a body that fails once it is too late.
type timed struct {
	io.ReadCloser
	size  int64
	until time.Time // zero: any time
}

func (b *timed) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.size += int64(n)
	if err == nil && !b.until.IsZero() && time.Now().After(b.until) {
		return n, fmt.Errorf("%w: it takes longer than a bookmark", errNotWorth)
	}
	return n, err
}
