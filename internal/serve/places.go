package serve

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// places bound what callers may have at a time. A user may have as much as is left for others,
// so one alone has half, and there is room for the next.
type places struct {
	mu   sync.Mutex
	free int64
	held map[string]int64 // by user
}

func newPlaces(n int64) *places { return &places{free: n, held: map[string]int64{}} }

// take takes n places for a user, or none if there are too few. "" is this user, who shares
// with nobody.
func (p *places) take(user string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > p.free || user != "" && p.held[user]+n > p.free {
		return false
	}
	p.free -= n
	p.held[user] += n
	return true
}

// give gives places back.
func (p *places) give(user string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free += n
	if p.held[user] -= n; p.held[user] == 0 {
		delete(p.held, user)
	}
}

const (
	// bodies is how many of the largest bodies each address keeps at a time.
	bodies = 16
	// leastBody is what a body takes, however small it is.
	leastBody = 16 << 10
)

// readBody reads a request's body before the request gets a place, so one that comes slowly
// takes only its own bytes. The caller calls give once they are not needed any more.
func (l *limited) readBody(r *http.Request, user string) (give func(), refusal *apierrors.StatusError) {
	var taken int64
	give = func() { l.bodies.give(user, taken) }
	var body []byte
	var err error
	for err == nil {
		if len(body) == cap(body) {
			more := max(int64(len(body)), leastBody)
			if !l.bodies.take(user, more) {
				return give, apierrors.NewTooManyRequests("too many requests with bodies are under way, please try "+
					"again later", 1)
			}
			taken += more
			body = append(make([]byte, 0, taken), body...)
		}
		var n int
		n, err = r.Body.Read(body[len(body):cap(body)])
		body = body[:len(body)+n]
	}
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return give, apierrors.NewRequestEntityTooLargeError(large.Error())
	case !errors.Is(err, io.EOF):
		return give, apierrors.NewBadRequest("the request's body did not come: " + err.Error())
	}
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return give, nil
}
