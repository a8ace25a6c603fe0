package kubesim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// StartPipes is Start without a socket: clients of RESTConfig connect through
// pipes within the process. A test may then run in a testing/synctest bubble,
// with client-go's sleeps and all on the bubble's clock.
func (s *Server) StartPipes() error {
	s.netMu.Lock()
	s.pipes = true
	s.netMu.Unlock()
	return s.listen("pipe")
}

// pipeListener accepts the other ends of the connections that dial returns.
type pipeListener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.done) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "pipe" }

// dialPipe connects to the listener, or is refused as a socket would be.
func (s *Server) dialPipe(ctx context.Context, network, addr string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: network, Err: syscall.ECONNREFUSED}
	s.netMu.Lock()
	l, ok := s.ln.(*pipeListener)
	if s.http == nil {
		ok = false
	}
	s.netMu.Unlock()
	if !ok {
		return nil, refused
	}
	mine, theirs := net.Pipe()
	select {
	case l.conns <- theirs:
		c := &pipeConn{Conn: mine, closed: make(chan struct{})}
		if s.opts.HTTP2 {
			s.netMu.Lock()
			s.pipeEnds = append(s.pipeEnds, c)
			s.netMu.Unlock()
		}
		return c, nil
	case <-l.done:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// noticed waits until clients have closed their ends of connections that this server has
// closed, as over HTTP/2 they soon do. A request that is sent earlier would fail.
func (s *Server) noticed() {
	s.netMu.Lock()
	ends := s.pipeEnds
	s.pipeEnds = nil
	s.netMu.Unlock()
	patience := time.NewTimer(time.Second)
	defer patience.Stop()
	for _, c := range ends {
		select {
		case <-c.closed:
		case <-patience.C:
			return
		}
	}
}

// pipeConn has its own address and errors, as a socket has.
type pipeConn struct {
	net.Conn
	once   sync.Once
	closed chan struct{}
}

func (c *pipeConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// Write fails with ECONNRESET once the other end is closed: clients send the request again.
func (c *pipeConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "pipe", Err: syscall.ECONNRESET}
	}
	return n, err
}

func (c *pipeConn) LocalAddr() net.Addr { return pipeEnd(fmt.Sprintf("pipe %p", c)) }

type pipeEnd string

func (pipeEnd) Network() string  { return "pipe" }
func (e pipeEnd) String() string { return string(e) }
