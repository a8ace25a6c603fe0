package reflector

import (
	"context"
	"net/http"
	"net/http/httptrace"
	"sync"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// link tells by what came over it which server answers. While the connection is
// the same one the server's process has not changed, and so its history has not.
// While the flow schema that the answers name is the same one the cluster has
// not: it is an object of the cluster's.
type link struct {
	mu   sync.Mutex
	conn string
	flow string
}

type linkKey struct{}

// trace returns a context whose requests are noted.
func (l *link) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(context.WithValue(ctx, linkKey{}, l), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conn = info.Conn.LocalAddr().String() + " " + info.Conn.RemoteAddr().String()
	}})
}

// noteAnswer notes what an answer says of its server.
func noteAnswer(ctx context.Context, resp *http.Response) {
	l, _ := ctx.Value(linkKey{}).(*link)
	if flow := resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); l != nil && flow != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.flow = flow
	}
}

// told names the connection, "" for clients that do not use HTTP, and the flow
// schema, "" where the server names none. A nil link has told nothing.
func (l *link) told() (conn, flow string) {
	if l == nil {
		return "", ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn, l.flow
}
