package link

import (
	"io"
	"net"
	"sync"
	"time"
)

// proxy is a TCP link that fails as it is told.
type proxy struct {
	to string

	mu      sync.Mutex
	l       net.Listener
	conns   map[*pair]struct{}
	refused bool
	rate    int // bytes a second from the server, over all connections; 0: no limit
	free    time.Time
}

// pair is a connection through the link.
type pair struct {
	client, server net.Conn
	frozen         chan struct{} // closed: nothing passes any more
}

func newProxy(to string) (*proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &proxy{to: to, l: l, conns: map[*pair]struct{}{}}
	go p.accept()
	return p, nil
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) close() {
	_ = p.l.Close()
	p.drop()
}

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		refused := p.refused
		p.mu.Unlock()
		server, err := net.Dial("tcp", p.to)
		if refused || err != nil {
			_ = client.Close()
			if err == nil {
				_ = server.Close()
			}
			continue
		}
		c := &pair{client, server, make(chan struct{})}
		p.mu.Lock()
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		go p.copy(c, server, client, false)
		go p.copy(c, client, server, true)
	}
}

func (p *proxy) copy(c *pair, to, from net.Conn, paced bool) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		select {
		case <-c.frozen: // open, and dead
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if paced {
			p.pace(n)
		}
		if n > 0 {
			if _, werr := to.Write(buf[:n]); werr != nil {
				err = werr
			}
		}
		if err != nil {
			_, _ = c.client.Close(), c.server.Close()
			p.mu.Lock()
			delete(p.conns, c)
			p.mu.Unlock()
			return
		}
	}
}

func (p *proxy) pace(n int) {
	p.mu.Lock()
	var wait time.Duration
	if p.rate > 0 {
		if now := time.Now(); p.free.Before(now) {
			p.free = now
		}
		p.free = p.free.Add(time.Duration(n) * time.Second / time.Duration(p.rate))
		wait = time.Until(p.free)
	}
	p.mu.Unlock()
	<-time.After(wait)
}

// drop closes all connections.
func (p *proxy) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_, _ = c.client.Close(), c.server.Close()
	}
}

// refuse closes all connections, and new ones at once, or no longer.
func (p *proxy) refuse(on bool) {
	p.mu.Lock()
	p.refused = on
	p.mu.Unlock()
	if on {
		p.drop()
	}
}

// freeze lets nothing pass over the connections there are; new ones work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		close(c.frozen)
		delete(p.conns, c)
	}
}

// limit is how many bytes a second the server's answers share, 0: any.
func (p *proxy) limit(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}
