package serve

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// Bound returns a listener for a server whose connections are at most most. A new one takes the
// place of the one that is idle or new since longest, unless its request [keeps] it. So neither
// idle connections, nor headers or bodies that do not come, nor strangers keep others out. If
// all are kept, it waits.
func Bound(srv *http.Server, l net.Listener, most int) net.Listener {
	b := &bounded{Listener: l, most: most, waiting: list.New()}
	b.changed.L = &b.mu
	srv.ConnState = b.state
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connectionKey{}, b.of(c))
	}
	return b
}

type connectionKey struct{}

// keeps keeps the connection of a request until it is idle again.
func keeps(r *http.Request) {
	if c, _ := r.Context().Value(connectionKey{}).(*connection); c != nil {
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.leave(c)
	}
}

type bounded struct {
	net.Listener
	most int

	mu      sync.Mutex
	changed sync.Cond
	open    int
	closed  bool
	waiting *list.List // connections that nothing keeps, the first since longest
}

// connection is one of a bounded listener.
type connection struct {
	net.Conn
	of    *bounded
	place *list.Element // in waiting, nil if a request keeps it
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

// of is the connection of a server's connection.
func (*bounded) of(conn net.Conn) *connection {
	if t, ok := conn.(*tls.Conn); ok {
		conn = t.NetConn()
	}
	return conn.(*connection)
}

// state is an http.Server's ConnState.
func (b *bounded) state(conn net.Conn, now http.ConnState) {
	c := b.of(conn)
	b.mu.Lock()
	defer b.mu.Unlock()
	if !c.ended && (now == http.StateNew || now == http.StateIdle) {
		b.leave(c)
		c.place = b.waiting.PushBack(c)
		b.changed.Broadcast()
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
