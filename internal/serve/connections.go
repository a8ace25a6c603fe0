package serve

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Bound returns a listener for a server whose connections are at most most. A new one takes the
// place of the one that has waited longest without a whole request. So neither idle connections
// nor headers that do not come keep others out. If all have requests under way, it waits.
func Bound(srv *http.Server, l net.Listener, most int) net.Listener {
	b := &bounded{Listener: l, most: most, waiting: list.New()}
	b.changed.L = &b.mu
	srv.ConnState = b.state
	return b
}

type bounded struct {
	net.Listener
	most int

	mu      sync.Mutex
	changed sync.Cond
	open    int
	closed  bool
	waiting *list.List // connections without a whole request, the first since longest
}

// connection is one of a bounded listener.
type connection struct {
	net.Conn
	of    *bounded
	place *list.Element // in waiting, nil if it has a request
	ended bool
}

// Accept implements net.Listener.
func (b *bounded) Accept() (net.Conn, error) {
	c, err := b.Listener.Accept()
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	for b.open >= b.most && !b.closed {
		first := b.waiting.Front()
		if first == nil {
			b.changed.Wait()
			continue
		}
		oldest := first.Value.(*connection)
		b.end(oldest)
		b.mu.Unlock()
		_ = oldest.Conn.Close() // nobody waits for it
		b.mu.Lock()
	}
	defer b.mu.Unlock()
	b.open++
	return &connection{Conn: c, of: b}, nil
}

// Close implements net.Listener.
func (b *bounded) Close() error {
	b.mu.Lock()
	b.closed = true
	b.changed.Broadcast()
	b.mu.Unlock()
	return b.Listener.Close()
}

// state is an http.Server's ConnState.
func (b *bounded) state(conn net.Conn, now http.ConnState) {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	c, ok := conn.(*connection)
	if !ok {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	waits := now == http.StateNew || now == http.StateIdle
	switch {
	case c.ended:
	case waits && c.place == nil:
		c.place = b.waiting.PushBack(c)
		b.changed.Broadcast()
	case !waits:
		b.leave(c)
	}
}

// end needs mu.
func (b *bounded) end(c *connection) {
	if !c.ended {
		c.ended = true
		b.open--
		b.leave(c)
		b.changed.Broadcast()
	}
}

// leave needs mu.
func (b *bounded) leave(c *connection) {
	if c.place != nil {
		b.waiting.Remove(c.place)
		c.place = nil
	}
}

// Close implements net.Conn.
func (c *connection) Close() error {
	c.of.mu.Lock()
	c.of.end(c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
