package serve

import (
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

// Limits bound the resources that callers can use.
type Limits struct {
	Connections int           // of each listener; others wait
	Requests    int           // that are not long, half of them at the server; more get 429
	Watches     int           // watches and other long requests; more get 429
	Header      int           // bytes of a request's header
	Body        int64         // bytes of a request's body
	Send        time.Duration // to send a header, and a body
	Take        time.Duration // to take the whole answer of a request that is not long
	Stall       time.Duration // to take a piece of a long answer, or to send one if the other side has ended
}

// DefaultLimits are for an edge device with some dozens of clients.
var DefaultLimits = Limits{
	Connections: 1000, Requests: 100, Watches: 1000,
	Header: 64 << 10, Body: 3 << 20,
	Send: 30 * time.Second, Take: 5 * time.Minute, Stall: 5 * time.Minute,
}

// refusalTake is how long a client has to take a refusal, and to send the body of its request.
const refusalTake = 5 * time.Second

// limited bounds the number of requests that next has at a time from one address, and the
// size and time of each. Their callers have passed the gate.
type limited struct {
	Limits
	short, long *places
	waiting     *places       // of short requests, for those that wait for the server
	bodies      *places       // bytes
	refused     chan struct{} // in HTTP/2, and not taken yet
	gate        gate
	next        http.HandlerFunc
}

func newLimited(l Limits, g gate, next http.HandlerFunc) *limited {
	return &limited{
		l, newPlaces(int64(l.Requests)), newPlaces(int64(l.Watches)), newPlaces(int64(max(l.Requests/2, 1))),
		newPlaces(bodies * max(l.Body, leastBody)), make(chan struct{}, l.Requests), g, next,
	}
}

// ServeHTTP implements http.Handler.
func (l *limited) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The next calls fail only on a connection that is gone.
	c := http.NewResponseController(w)
	keepNamed(r.Header)
	takeToken(r)
	if r.ContentLength != 0 {
		// The deadline stays: net/http waits for an unread body, and clears the deadline
		// once the body has come or the connection is a stream.
		_ = c.SetReadDeadline(time.Now().Add(l.Send))
		r.Body = http.MaxBytesReader(w, r.Body, l.Body)
	}
	if refusal := l.answer(w, r, c); refusal != nil {
		l.refuse(w, r, c, refusal)
	}
}

// answer answers a request that passes the gate and gets a place, or returns a refusal.
func (l *limited) answer(w http.ResponseWriter, r *http.Request, c *http.ResponseController) *apierrors.StatusError {
	who, refusal := l.enter(w, r)
	if refusal != nil {
		return refusal
	}
	r = withCaller(r, who)
	long := isLong(r)
	places := l.short
	if long {
		places = l.long
	} else if r.ContentLength != 0 {
		give, refusal := l.readBody(r, who.name())
		defer give()
		if refusal != nil {
			breakOff(r)
			return refusal
		}
	}
	if !places.take(who.name(), 1) {
		return apierrors.NewTooManyRequests("there are too many requests under way, please try again later", 1)
	}
	defer places.give(who.name(), 1)
	if long {
		_ = c.SetWriteDeadline(time.Time{})
		ctx, end := context.WithCancel(r.Context())
		defer end()
		r = r.WithContext(ctx)
		w = &patient{ResponseWriter: w, c: c, stall: l.Stall, end: end}
	} else {
		_ = c.SetWriteDeadline(time.Now().Add(l.Take))
	}
	l.next(w, r)
	if r.ProtoMajor > 1 {
		// The rest of the answer would wait in memory for the client, without a place.
		_ = http.NewResponseController(w).Flush() // it fails if the client left
	}
	return nil
}

// enter lets a caller in, or returns a refusal.
func (l *limited) enter(w http.ResponseWriter, r *http.Request) (*caller, *apierrors.StatusError) {
	c, refusal := l.gate(r)
	if refusal != nil {
		breakOff(r)
		if refusal.ErrStatus.Code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		return nil, refusal
	}
	if c.gate == nil {
		c.gate = l.gate
	}
	c.waiting = l.waiting
	return c, nil
}

// refuse answers a request that gets no further. Its client may be a stranger who takes no
// answer: in HTTP/2 these would be in memory, as many as the client sends requests.
func (l *limited) refuse(
	w http.ResponseWriter, r *http.Request, c *http.ResponseController, refusal *apierrors.StatusError,
) {
	if r.ProtoMajor == 1 {
		if r.ContentLength != 0 {
			_ = c.SetReadDeadline(time.Now().Add(min(l.Send, refusalTake))) // net/http waits for an unread body
		}
		kubeapi.WriteStatus(w, refusal)
		return
	}
	select {
	case l.refused <- struct{}{}:
		defer func() { <-l.refused }()
	default:
		panic(http.ErrAbortHandler)
	}
	_ = c.SetWriteDeadline(time.Now().Add(refusalTake))
	kubeapi.WriteStatus(w, refusal)
	_ = c.Flush() // it fails if the client left
}

// onward passes requests on to the server. Those that wait for it leave room for those that
// the file answers.
type onward struct{ link *Link }

// ServeHTTP implements http.Handler.
func (o *onward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c := callerOf(r); !isLong(r) {
		if !c.waiting.take(c.name(), 1) {
			kubeapi.WriteStatus(w, apierrors.NewTooManyRequests("there are too many requests that wait for the "+
				"server, please try again later", 1))
			return
		}
		defer c.waiting.give(c.name(), 1)
	}
	o.link.ServeHTTP(w, r)
}

// isLong says whether a request may last: a watch, a log that is followed, or a stream
// both ways.
func isLong(r *http.Request) bool {
	if upgrades(r) {
		return true
	}
	p := kubeapi.ParsePath(r.URL.Path)
	switch p.Subresource {
	case "attach", "exec", "portforward", "proxy", "log":
		return true
	}
	return p.Verb(r.Method, r.URL.Query()) == "watch" || p.Resource == "watch"
}

// upgrades says whether a request asks for a stream both ways. HTTP/2 on a plain connection
// (h2c) is an offer only: the answer may be in HTTP/1.1.
func upgrades(r *http.Request) bool {
	protocol := r.Header.Get("Upgrade")
	return protocol != "" && !strings.EqualFold(protocol, "h2c")
}

// patient is a long answer. The client takes each piece in time or loses the answer.
type patient struct {
	http.ResponseWriter
	c     *http.ResponseController
	stall time.Duration
	end   context.CancelFunc // of the request
}

// Write implements io.Writer.
func (p *patient) Write(b []byte) (n int, err error) {
	err = p.inTime(func() error {
		n, err = p.ResponseWriter.Write(b)
		return err
	})
	return n, err
}

// Flush implements http.Flusher.
func (p *patient) Flush() { _ = p.FlushError() } // the next Write has the error

// FlushError is for http.ResponseController.
func (p *patient) FlushError() error { return p.inTime(p.c.Flush) }

func (p *patient) inTime(do func() error) error {
	if err := p.c.SetWriteDeadline(time.Now().Add(p.stall)); err != nil {
		return err
	}
	err := do()
	if err == nil {
		err = p.c.SetWriteDeadline(time.Time{}) // in HTTP/2 it would end a stream that is idle
	}
	return err
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }
