package reflector

import (
	"context"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/kubewake/kubewake/internal/packed"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// An answer shows its continue token before its objects. So the transport sends the
// request for the next page while the objects of this one still come and are decoded. The
// list function is called when it is that page's turn, as ever, and its request gets the
// answer that is there. Until then the answer is not read, and takes no more memory than
// its bytes on the link.
//
// On a slow link pages are asked for in turn: two would share the link, and a break would
// cost both. So is the rest of a list once a page has failed or an early answer was of no
// use, and the beginning, while pages still grow to their size.

const (
	// quickPage is how soon a page must have come before another is asked for early.
	quickPage = time.Second
	// mostHead is within how many bytes an answer must show its continue token.
	mostHead = 16 << 10
)

// early is a request for a page before its turn.
type early struct {
	limit int64 // of the page
	req   *http.Request
	end   context.CancelFunc
	done  chan struct{}  // closed when resp is set
	resp  *http.Response // nil if the request has failed
}

func sendEarly(over http.RoundTripper, req *http.Request, end context.CancelFunc, limit int64) *early {
	e := &early{limit: limit, req: req, end: end, done: make(chan struct{})}
	go func() {
		defer close(e.done)
		if resp, err := over.RoundTrip(req); err == nil {
			e.resp = resp
		}
	}()
	return e
}

// drop gives the request up. It does not wait for its end, since a transport may ignore the
// context. nil is no request.
func (e *early) drop() {
	if e == nil {
		return
	}
	e.end()
	go func() {
		if <-e.done; e.resp != nil {
			_ = e.resp.Body.Close() // nothing of it was read
		}
	}()
}

// is says whether the request is the same.
func (e *early) is(req *http.Request) bool {
	return e.req.URL.Host == req.URL.Host && e.req.URL.Path == req.URL.Path && e.req.URL.Query().Encode() == req.URL.Query().Encode() &&
		maps.EqualFunc(e.req.Header, req.Header, slices.Equal)
}

// answer is the answer to the caller's own request, nil if there is none.
func (e *early) answer(req *http.Request) *http.Response {
	select {
	case <-e.done:
	case <-req.Context().Done():
		e.drop()
		return nil
	}
	if e.resp == nil {
		return nil
	}
	context.AfterFunc(req.Context(), e.end)
	e.resp.Request = req
	e.resp.Header.Del("Date") // it came before its turn, so that says nothing of the clock
	return e.resp
}

// neighbours is what a page knows of the page before it and of the one after it. The
// page's mu guards it.
type neighbours struct {
	early *early // this page's request, if it was sent before its turn

	list  context.Context // nil: the next page is not asked for early
	token string          // that the list function was given for this page
	limit int64           // the same
	over  http.RoundTripper
	sent  *http.Request // for this page

	nextLimit int64
	next      *early
}

// beginPage returns the limit for a page. The page gets its early request. If pages come
// quickly, it asks for the page after it.
func (l *lister) beginPage(ctx context.Context, p *rawPage) (limit int64) {
	e := l.early
	if l.early = nil; p == nil {
		e.drop()
		return l.size.limit
	}
	p.neighbours = neighbours{early: e, token: l.at.token, limit: l.size.limit, nextLimit: l.size.limit}
	if e != nil {
		p.neighbours.limit = e.limit
	}
	if l.steady && !l.noEarly && p.compare == nil {
		p.neighbours.list = ctx
	}
	return p.neighbours.limit
}

// endPage keeps the page's request for the one after it, unless the page has failed.
func (l *lister) endPage(p *rawPage, failed bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	unused, next := p.neighbours.early, p.neighbours.next
	p.neighbours = neighbours{}
	p.mu.Unlock()
	unused.drop()
	if l.early = next; failed || unused != nil { // it failed, or the list function sends other requests
		l.noEarly = true
		l.dropEarly()
	}
}

func (l *lister) dropEarly() {
	l.early.drop()
	l.early = nil
}

// pageTransport sends the request of a page, unless that was done before its turn.
type pageTransport struct {
	next http.RoundTripper
	p    *rawPage
}

func (t pageTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	if pageOf(req) == nil {
		return t.next.RoundTrip(req) // the list function also asks for something else
	}
	if e := t.p.take(t.next, req); e != nil {
		if resp := e.answer(req); resp != nil {
			return resp, nil
		}
	}
	return t.next.RoundTrip(req)
}

// take returns the page's early request, if it is this one.
func (p *rawPage) take(over http.RoundTripper, req *http.Request) (e *early) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.neighbours.over, p.neighbours.sent = over, req
	e = p.neighbours.early
	switch {
	case e == nil:
	case e.is(req):
		p.neighbours.early = nil
	default:
		p.neighbours.list, e = nil, nil // the next one would be of no use either
	}
	return e
}

// readHead has the next page asked for once the page's answer shows its token.
func (p *rawPage) readHead(resp *http.Response) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	// HTTP/1.1 would need a second connection.
	if err == nil && resp.ProtoMajor > 1 && resp.StatusCode == http.StatusOK && len(packed.By(resp.Header)) == 0 && wire.Known(media) {
		resp.Body = &headed{ReadCloser: resp.Body, media: media, p: p}
	}
}

// askNext asks for the page that begins at the token, unless the list function makes
// requests of its own.
func (p *rawPage) askNext(token string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &p.neighbours
	if t.list == nil || t.sent == nil || t.next != nil {
		return
	}
	q := t.sent.URL.Query()
	if q.Get("continue") != t.token || q.Get("limit") != strconv.FormatInt(t.limit, 10) {
		return
	}
	q.Set("continue", token)
	q.Set("limit", strconv.FormatInt(t.nextLimit, 10))
	ctx, end := context.WithCancel(t.list)
	req := t.sent.Clone(ctx)
	req.URL.RawQuery = q.Encode()
	t.next = sendEarly(t.over, req, end, t.nextLimit)
}

// headed is an answer whose head is read on the way.
type headed struct {
	io.ReadCloser
	media string
	head  []byte
	p     *rawPage // nil once the head has been read
}

func (h *headed) Read(buf []byte) (int, error) {
	n, err := h.ReadCloser.Read(buf)
	if h.p == nil {
		return n, err
	}
	h.head = append(h.head, buf[:min(n, mostHead-len(h.head))]...)
	token, ok := wire.Continue(h.media, h.head)
	if ok && token != "" {
		h.p.askNext(token)
	}
	if ok || err != nil || len(h.head) == mostHead {
		h.p, h.head = nil, nil
	}
	return n, err
}
