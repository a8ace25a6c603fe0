package reflector

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/packed"
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
	if err != nil || src.Group != m.of.Group || src.Version != m.of.Version || src.Resource != m.of.Resource || src.Namespace != m.of.Namespace {
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
	bytes, objects int64  // the wanted size of the page, in bytes and in objects
	version        string // the list must be no older; "": it is of the present
	token          string // continue token; "": the first page
	pack           bool   // the answer may be compressed
	most           int64  // bytes that may come; 0: any
	few            bool   // only if the link admits it, see linkSpeed.admits; otherwise errNoRoom
}

// pageAnswer is a page of metadata.
type pageAnswer struct {
	listed     []listing.Object
	about      metav1.ListMeta
	flow       string        // flow schema of the server
	size, sent int64         // bytes, unpacked and as they came
	took       time.Duration // from the request to the answer's end
	waited     bool          // it was asked for callers of WaitForFresh
}

// errNoRoom: the list was not asked for.
var errNoRoom = fmt.Errorf("%w: other lists have used up the bytes allowed over a far link", errNotWorth)

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
	for _, of := range []string{"watch", "resourceVersion", "resourceVersionMatch", "timeout", "timeoutSeconds", "allowWatchBookmarks", "sendInitialEvents"} {
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
	if !ask.pack {
		req.Header.Set("Accept-Encoding", "identity")
	}
	var sent atomic.Int64
	var began time.Time
	resp, err := t.gate.roundTrip(req, func(req *http.Request) (*http.Response, error) {
		if ask.few && !t.speed.admits(ask.most) {
			return nil, errNoRoom
		}
		return notePulse(func(req *http.Request) (*http.Response, error) {
			began = t.speed.now()
			return packed.RoundTrip(t.next, t.speed.trace(req), ask.pack && !t.plain, &sent)
		}, req)
	})
	if err != nil {
		return a, err
	}
	noteAnswer(req, resp)
	body := &capped{ReadCloser: resp.Body, sent: &sent, most: ask.most}
	if ask.few {
		body.late = func() bool { return t.speed.now().Sub(began) > bookmarkAfter }
	}
	resp.Body = body
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return a, fmt.Errorf("%w: list metadata: %s", errNoMetadata, resp.Status)
	}
	a.flow = resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID)
	a.listed, a.about, _, err = wire.ReadMetadata(resp)
	a.size, a.sent, a.took = body.size, sent.Load(), t.speed.now().Sub(began)
	return a, err
}

// errMoreCame: the guess of the size was too small. The next one is twice as large.
var errMoreCame = fmt.Errorf("%w: more bytes have come than were expected", errNotWorth)

// capped is a body that fails once too many bytes have come, or it is too late.
type capped struct {
	io.ReadCloser
	sent       *atomic.Int64
	size, most int64
	late       func() bool // nil: never
}

func (c *capped) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.size += int64(n)
	if err == nil && c.late != nil && c.late() {
		return n, fmt.Errorf("%w: it takes longer than a bookmark", errNotWorth)
	}
	if c.most > 0 && c.sent.Load() > c.most {
		return n, fmt.Errorf("%w: %d", errMoreCame, c.most)
	}
	return n, err
}

// trace returns the request with a trace that measures it.
func (r *linkSpeed) trace(req *http.Request) *http.Request {
	var mu sync.Mutex
	var connecting, wrote time.Time
	return req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		ConnectStart: func(_, _ string) {
			mu.Lock()
			defer mu.Unlock()
			connecting = r.now()
		},
		ConnectDone: func(_, _ string, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				r.connected(r.now().Sub(connecting))
			}
		},
		WroteRequest: func(httptrace.WroteRequestInfo) {
			mu.Lock()
			defer mu.Unlock()
			wrote = r.now()
		},
		GotFirstResponseByte: func() {
			mu.Lock()
			defer mu.Unlock()
			if !wrote.IsZero() {
				r.answered(r.now().Sub(wrote))
			}
		},
	}))
}
