package serve

import (
	"bufio"
	"net"
	"net/http"
	"sync"
	"time"
)

// Hijack implements http.Hijacker.
func (p *patient) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buf, err := p.c.Hijack()
	if err != nil {
		return nil, nil, err
	}
	return &stream{Conn: conn, stall: p.stall, end: p.end}, buf, nil
}

// stream is a connection for a stream both ways. Once one side has ended, the other one
// sends something in time, or both end: the end may be that of a client that is gone.
type stream struct {
	net.Conn
	stall time.Duration
	end   func() // ends the server's side

	mu     sync.Mutex
	closed bool
	timer  *time.Timer // since one side has ended
}

// Read implements net.Conn.
func (s *stream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	s.goesOn(err != nil)
	return n, err
}

// Write implements net.Conn.
func (s *stream) Write(b []byte) (int, error) {
	s.goesOn(false)
	return s.Conn.Write(b)
}

// CloseWrite is for a server that has sent everything.
func (s *stream) CloseWrite() error {
	half, ok := s.Conn.(interface{ CloseWrite() error })
	if !ok {
		return http.ErrNotSupported // the proxy ends the stream
	}
	s.goesOn(true)
	return half.CloseWrite()
}

// Close implements net.Conn.
func (s *stream) Close() error {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	return s.Conn.Close()
}

// goesOn notes that one side has ended, or sent something.
func (s *stream) goesOn(ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
	case s.timer != nil:
		s.timer.Reset(s.stall)
	case ended:
		s.timer = time.AfterFunc(s.stall, func() {
			s.end()
			_ = s.Close() // it may wait for the client to take something
		})
	}
}
