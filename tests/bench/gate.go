package main

import (
	"io"
	"net"
	"strings"
	"sync"
)

// gate is a link to the server that can be cut.
type gate struct {
	listener net.Listener
	server   string
	mu       sync.Mutex
	open     bool
	conns    map[net.Conn]bool
}

// newGate opens a gate to the server at host, a URL.
func newGate(host string) (*gate, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{listener: l, server: strings.TrimPrefix(host, "https://"), open: true, conns: map[net.Conn]bool{}}
	go g.run()
	return g, nil
}

func (g *gate) host() string { return "https://" + g.listener.Addr().String() }

func (g *gate) run() {
	for {
		near, err := g.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", g.server)
		if err != nil {
			_ = near.Close()
			continue
		}
		if !g.hold(near, far) {
			continue
		}
		go g.pass(near, far)
		go g.pass(far, near)
	}
}

// hold keeps connections to be cut; a closed gate cuts them at once.
func (g *gate) hold(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conns {
		if g.open {
			g.conns[c] = true
		} else {
			_ = c.Close()
		}
	}
	return g.open
}

func (g *gate) pass(to, from net.Conn) {
	_, _ = io.Copy(to, from) // either end may go at any time
	_ = to.Close()
	_ = from.Close()
}

// cut breaks all connections and lets none through until mend.
func (g *gate) cut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = false
	for c := range g.conns {
		_ = c.Close()
	}
	clear(g.conns)
}

func (g *gate) mend() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}

func (g *gate) close() {
	_ = g.listener.Close()
	g.cut()
}
