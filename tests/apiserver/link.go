package apiserver

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
)

// Link is a TCP link to a server. It can be lost: then connections end, and new ones are
// refused.
type Link struct {
	t        testing.TB
	to, addr string

	mu    sync.Mutex
	l     net.Listener // nil while it is lost
	conns map[net.Conn]bool
}

// Link returns a link to the server that lasts as long as the test.
func (s *Server) Link(t testing.TB) *Link {
	t.Helper()
	port, err := freePort() // a link gets its port back
	if err != nil {
		t.Fatal(err)
	}
	k := &Link{t: t, to: strings.TrimPrefix(s.Config().Host, "https://"), addr: fmt.Sprintf("127.0.0.1:%d", port),
		conns: map[net.Conn]bool{}}
	k.Restore()
	t.Cleanup(k.Lose)
	return k
}

// Kubeconfig returns a file with the admin's Config over the link. The file lasts as long
// as the test.
func (k *Link) Kubeconfig(t testing.TB, s *Server) string {
	t.Helper()
	path := s.Kubeconfig(t)
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, cluster := range c.Clusters {
		cluster.Server = "https://" + k.addr
	}
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Lose loses the link. It does nothing if the link is lost already.
func (k *Link) Lose() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.l == nil {
		return
	}
	if err := k.l.Close(); err != nil {
		k.t.Error(err)
	}
	k.l = nil
	for c := range k.conns {
		_ = c.Close() // it may be closed
	}
}

// Restore restores the link. It does nothing if the link is not lost.
func (k *Link) Restore() {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.l != nil {
		return
	}
	l, err := net.Listen("tcp", k.addr)
	if err != nil {
		k.t.Fatal(err)
	}
	k.l = l
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go k.pass(c)
		}
	}()
}

// add notes a connection, unless the link is lost.
func (k *Link) add(c net.Conn) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.l != nil {
		k.conns[c] = true
	}
	return k.l != nil
}

func (k *Link) remove(c net.Conn) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.conns, c)
}

func (k *Link) pass(c net.Conn) {
	defer c.Close()
	s, err := net.Dial("tcp", k.to)
	if err != nil {
		return
	}
	defer s.Close()
	for _, end := range []net.Conn{c, s} {
		if !k.add(end) {
			return
		}
		defer k.remove(end)
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{c, s}, {s, c}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // until either ends
			done <- struct{}{}
		}()
	}
	<-done
}
