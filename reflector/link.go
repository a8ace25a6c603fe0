package reflector

import (
	"context"
	"net/http/httptrace"
	"sync"
)

// link names the connection that a request went over. While it is the same one
// the server's process has not changed, and so its history has not.
type link struct {
	mu   sync.Mutex
	name string
}

// trace returns a context whose requests note their connection.
func (l *link) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.name = info.Conn.LocalAddr().String() + " " + info.Conn.RemoteAddr().String()
	}})
}

// String is "" for clients that do not use HTTP.
func (l *link) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.name
}
