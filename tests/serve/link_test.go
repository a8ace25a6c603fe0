package serve

import (
	"io"
	"net"
	"sync"
	"testing"
)

// link is a TCP link that can be lost.
type link struct {
	to string
	l  net.Listener

	mu    sync.Mutex
	lost  bool
	conns map[net.Conn]bool
}

func newLink(t *testing.T, to string) *link {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	k := &link{to: to, l: l, conns: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close() // nobody uses it any more
		k.refuse(true)
	})
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.pass(c)
		}
	}()
	return k
}

func (k *link) addr() string { return k.l.Addr().String() }

// refuse loses the link, or has it back.
func (k *link) refuse(lost bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.lost = lost
	for c := range k.conns {
		if lost {
			_ = c.Close() // it may be closed
		}
	}
}

// add notes a connection, and closes it if the link is lost.
func (k *link) add(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.conns[c] = true
	return !k.lost
}

func (k *link) pass(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer s.Close()
	if !k.add(c) || !k.add(s) {
		return
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // until either ends
			done <- struct{}{}
		}()
	}
	<-done
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
	delete(k.conns, s)
}
