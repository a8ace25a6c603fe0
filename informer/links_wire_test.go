package informer

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// wire is a link between pipes that is held up, loses bytes, is slow or breaks on demand.
// Direction 0 leads to the server.
type wire struct {
	l *wireListener

	mu     sync.Mutex
	cond   sync.Cond
	conns  map[*wireConn]bool
	held   [2]bool
	lost   [2]bool
	cut    int // a connection ends after so many bytes from the server; 0: none
	rate   int // bytes a second from the server, for each connection; 0: any
	refuse bool
	late   time.Duration
}

type wireConn struct {
	ends [2]net.Conn // the one towards the client, and the other one
	dead [2]bool     // the direction has lost bytes, and loses all later ones
	once sync.Once
	over chan struct{}
}

func newWire() *wire {
	w := &wire{l: &wireListener{conns: make(chan net.Conn), done: make(chan struct{})}, conns: map[*wireConn]bool{}}
	w.cond.L = &w.mu
	return w
}

func (w *wire) set(change func(*wire)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
	w.cond.Broadcast()
}

// drop ends all connections.
func (w *wire) drop() {
	w.set(func(w *wire) {
		for c := range w.conns {
			c.close()
		}
	})
}

func (c *wireConn) close() {
	c.once.Do(func() {
		close(c.over)
		_ = c.ends[0].Close() // of a pipe
		_ = c.ends[1].Close() // of a pipe
	})
}

func (c *wireConn) ended() bool {
	select {
	case <-c.over:
		return true
	default:
		return false
	}
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	w.mu.Lock()
	refuse := w.refuse
	w.mu.Unlock()
	if refuse {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	mine, near := net.Pipe()
	far, theirs := net.Pipe()
	select {
	case w.l.conns <- theirs:
	case <-w.l.done:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c := &wireConn{ends: [2]net.Conn{near, far}, over: make(chan struct{})}
	w.set(func(w *wire) { w.conns[c] = true })
	go w.carry(c, 0)
	go w.carry(c, 1)
	return wireEnd{mine, c}, nil
}

// wireEnd is the client's end. It has an address of its own, as a socket has.
type wireEnd struct {
	net.Conn
	c *wireConn
}

func (e wireEnd) LocalAddr() net.Addr { return wireAddr(fmt.Sprintf("pipe %p", e.c)) }

type wireChunk struct {
	b   []byte
	due time.Time
}

// carry carries the bytes of one direction until the connection ends.
func (w *wire) carry(c *wireConn, dir int) {
	defer w.set(func(w *wire) { c.close(); delete(w.conns, c) })
	chunks := make(chan wireChunk, 1<<16)
	go w.read(c, dir, chunks)
	for ch := range chunks {
		time.Sleep(time.Until(ch.due)) // on the bubble's clock, which takes no time: the link's delay
		pass, rate, end := w.pass(c, dir, len(ch.b))
		if end {
			return
		}
		if !pass {
			continue
		}
		if rate > 0 {
			// on the bubble's clock, which takes no time: the link is slow
			time.Sleep(time.Duration(len(ch.b)) * time.Second / time.Duration(rate)) // on the bubble's clock, see above
		}
		if _, err := c.ends[1-dir].Write(ch.b); err != nil {
			return
		}
	}
}

func (w *wire) read(c *wireConn, dir int, chunks chan<- wireChunk) {
	defer close(chunks)
	for {
		b := make([]byte, 1400)
		n, err := c.ends[dir].Read(b)
		w.mu.Lock()
		due := time.Now().Add(w.late)
		w.mu.Unlock()
		select {
		case chunks <- wireChunk{b[:n], due}:
		case <-c.over:
			return
		}
		if err != nil {
			return
		}
	}
}

// pass waits while the direction is held. It says whether n bytes pass, how fast, and
// whether the connection ends.
func (w *wire) pass(c *wireConn, dir, n int) (pass bool, rate int, end bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.held[dir] && !c.ended() {
		w.cond.Wait()
	}
	if dir == 1 {
		rate = w.rate
		if w.cut > 0 {
			if w.cut -= n; w.cut <= 0 {
				w.cut, end = 0, true
			}
		}
	}
	c.dead[dir] = c.dead[dir] || w.lost[dir]
	return !c.dead[dir], rate, end || c.ended()
}

type wireListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *wireListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *wireListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *wireListener) Addr() net.Addr { return wireAddr("127.0.0.1:1") }

type wireAddr string

func (wireAddr) Network() string  { return "pipe" }
func (a wireAddr) String() string { return string(a) }
