package reflector

import (
	"context"
	"io"
	"mime"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/packed"
	"github.com/kubewake/kubewake/reflector/internal/wire"
)

// An answer shows its continue token before its objects. So the next page is asked for
// while the objects of this one still come and are decoded. On a slow link it is not: two
// pages would share the link, and a break would cost both. Nor is it while pages still grow
// to their size.

const (
	// quickPage is how soon a page must have come before another is asked for early.
	quickPage = time.Second
	// mostHead is within how many bytes an answer must show its continue token.
	mostHead = 16 << 10
)

// page is a page that was asked for.
type page struct {
	token string // where it begins
	raw   *rawPage
	end   context.CancelFunc
	done  chan struct{} // closed when the rest is set
	list  runtime.Object
	size  int64 // bytes of the unpacked answer, 0 if they cannot be seen
	took  time.Duration
	by    listing.Server
	err   error
}

// ask returns the answer to the request for the next page. Meanwhile it asks for the page
// after it, once that is known and if pages come quickly.
func (l *lister) ask(ctx context.Context) *page {
	if l.early != nil && l.early.token != l.at.token {
		l.dropEarly()
		l.alone = true // the list function reads several pages at a time
	}
	p := l.early
	if l.early = nil; p == nil {
		p = l.begin(ctx, l.at.token)
	}
	if l.steady && !l.alone && p.raw != nil {
		select {
		case token := <-p.raw.shown:
			l.early = l.begin(ctx, token)
		case <-p.done:
		}
	}
	<-p.done
	return p
}

// begin asks for the page that begins at the token.
func (l *lister) begin(ctx context.Context, token string) *page {
	ctx, end := context.WithCancel(ctx)
	p := &page{token: token, raw: l.raw(), end: end, done: make(chan struct{})}
	began, most, o := l.s.clock.Now(), l.size.most(), metav1.ListOptions{Limit: l.size.limit, Continue: token}
	go func() {
		defer close(p.done)
		defer end()
		p.list, p.size, p.err = l.s.requests.measured(p.raw.in(ctx), l.s.o.quietTimeout, most, o)
		p.took = l.s.clock.Since(began)
		p.by = p.raw.server(l.s.cluster.by)
	}()
	return p
}

// dropEarly gives up the page that was asked for early, and waits for its end.
func (l *lister) dropEarly() {
	if l.early != nil {
		l.early.end()
		<-l.early.done
	}
	l.early, l.steady = nil, false
}

// lookAhead has the page's next continue token shown as soon as its answer is read so far.
func (p *rawPage) lookAhead(resp *http.Response) {
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && resp.ProtoMajor > 1 && resp.StatusCode == http.StatusOK && len(packed.By(resp.Header)) == 0 && wire.Known(media) {
		resp.Body = &headed{ReadCloser: resp.Body, media: media, p: p}
	}
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
		select {
		case h.p.shown <- token:
		default: // the list function reads several pages
		}
	}
	if ok || err != nil || len(h.head) == mostHead {
		h.p, h.head = nil, nil
	}
	return n, err
}
