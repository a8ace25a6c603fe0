package link

import (
	"net"
	"sync"
	"time"
)

// proxy is a TCP link that fails on demand.
type proxy struct {
	to string

	mu      sync.Mutex
	l       net.Listener
	conns   map[*pair]struct{}
	refused bool
	rate    int // bytes a second from the server, over all connections; 0: no limit
	free    time.Time
	late    time.Duration
	// cuts are connections to be reset, the next after left bytes from the
	// server, then one after every so many.
	left, every, cuts int
}

// pair is a connection through the link.
type pair struct {
	client, server net.Conn
	frozen         chan struct{} // closed: nothing passes any more
	ended          chan struct{}
	once           sync.Once
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
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = client.Close()
			continue
		}
		c := &pair{client: client, server: server, frozen: make(chan struct{}), ended: make(chan struct{})}
		p.mu.Lock()
		refused := p.refused
		p.conns[c] = struct{}{}
		p.mu.Unlock()
		if refused {
			p.end(c, false)
			continue
		}
		go p.copy(c, server, client, false)
		go p.copy(c, client, server, true)
	}
}

// chunk is a piece that was read at once, and the time at which it comes out.
type chunk struct {
	data []byte
	due  time.Time
}

// copy passes on the bytes from one end, later if the link has latency, and ends the pair
// with it.
func (p *proxy) copy(c *pair, to, from net.Conn, answers bool) {
	chunks := make(chan chunk, 64)
	go func() {
		defer close(chunks)
		for {
			buf := make([]byte, 4096)
			n, err := from.Read(buf)
			select {
			case chunks <- chunk{buf[:n], time.Now().Add(p.latency())}:
			case <-c.ended:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer p.end(c, false)
	for ch := range chunks {
		<-time.After(time.Until(ch.due))
		if answers {
			p.pace(len(ch.data))
		}
		select {
		case <-c.frozen: // open, and dead
			for range chunks {
			}
			return
		default:
		}
		if _, err := to.Write(ch.data); err != nil {
			return
		}
		if answers && p.cutNow(len(ch.data)) {
			p.end(c, true)
		}
	}
}

// end closes both ends of a pair, in order or with a reset.
func (p *proxy) end(c *pair, reset bool) {
	c.once.Do(func() {
		close(c.ended)
		for _, conn := range []net.Conn{c.client, c.server} {
			if tcp, ok := conn.(*net.TCPConn); ok && reset {
				_ = tcp.SetLinger(0)
			}
			_ = conn.Close()
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, c)
	})
}

func (p *proxy) latency() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// cutNow says whether a connection has to be reset after n more bytes.
func (p *proxy) cutNow(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cuts == 0 {
		return false
	}
	if p.left -= n; p.left > 0 {
		return false
	}
	p.cuts--
	p.left = p.every
	return true
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

// all returns all present pairs.
func (p *proxy) all() (pairs []*pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		pairs = append(pairs, c)
	}
	return pairs
}

// drop closes all connections.
func (p *proxy) drop() {
	for _, c := range p.all() {
		p.end(c, false)
	}
}

// reset ends all connections by RST.
func (p *proxy) reset() {
	for _, c := range p.all() {
		p.end(c, true)
	}
}

// cut resets a connection after every given number of bytes from the server, a given
// number of times.
func (p *proxy) cut(bytes, times int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left, p.every, p.cuts = bytes, bytes, times
}

// uncut returns how many of these resets have yet to come.
func (p *proxy) uncut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// delay sets how late bytes come out, in each direction.
func (p *proxy) delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = d
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

// freeze lets nothing pass over the present connections; new ones work.
func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		close(c.frozen)
		delete(p.conns, c)
	}
}

// limit sets how many bytes a second the server's answers share; 0 is no limit.
func (p *proxy) limit(bytesPerSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rate = bytesPerSecond
}
