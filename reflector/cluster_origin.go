package reflector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/kubewake/kubewake/internal/listing"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
)

// origin notes which server answers requests. As long as the connection is the
// same, so is the server's process, and with it the timeline. As long as the
// answers name the same flow schema, the cluster is the same, since the schema is
// an object in it.
type origin struct {
	dated func(time.Time) // gets the server's time, if not nil

	mu   sync.Mutex
	conn string
	anew bool // there was another connection before
	self bool // the connection leads to this machine
	flow string
	ca   string // hash of the public key that vouches for the server's
}

type originKey struct{}

// trace returns a context whose requests origin notes.
func (o *origin) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(context.WithValue(ctx, originKey{}, o), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		o.mu.Lock()
		defer o.mu.Unlock()
		conn := info.Conn.LocalAddr().String() + " " + info.Conn.RemoteAddr().String()
		o.anew = o.anew || o.conn != "" && o.conn != conn
		o.conn = conn
		o.self = ofThisMachine(info.Conn)
	}})
}

// noteAnswer notes what the answer to a list says about its server. Only lists count:
// other requests may match another flow schema.
func noteAnswer(req *http.Request, resp *http.Response) {
	o, _ := req.Context().Value(originKey{}).(*origin)
	if o == nil {
		return
	}
	if _, err := sourceOf(req.URL); err != nil {
		return
	}
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil && o.dated != nil && !o.here() {
		o.dated(t)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.flow, o.ca = resp.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID), caOf(resp)
}

// here says whether the server is at an address of this machine. Then its clock is
// this machine's, and vouches for nothing. Both ends of such a connection have the
// same address, or are loopback addresses.
func (o *origin) here() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.self
}

func ofThisMachine(c net.Conn) bool {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, okay := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !okay {
		return c.RemoteAddr().Network() == "unix"
	}
	return remote.IP.IsLoopback() || local.IP.Equal(remote.IP)
}

// caOf is "" if the connection is not secured, or its certificate is not checked. A
// certificate that was renewed with its key counts as the same.
func caOf(resp *http.Response) string {
	if resp.TLS == nil || len(resp.TLS.VerifiedChains) == 0 {
		return ""
	}
	chain := resp.TLS.VerifiedChains[0]
	sum := sha256.Sum256(chain[len(chain)-1].RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:16])
}

// answeredOver returns the connection, "" for clients that do not use HTTP, and the flow
// schema, "" if the server names none. Both are "" for a nil origin.
func (o *origin) answeredOver() (conn, flow string) {
	if o == nil {
		return "", ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn, o.flow
}

// reconnected says whether requests took more than one connection: if the first breaks, a
// client repeats a request by itself.
func (o *origin) reconnected() bool {
	if o == nil {
		return false
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.anew
}

// server is what the answers said about the server.
func (o *origin) server() (by listing.Server) {
	if o == nil {
		return by
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return listing.Server{FlowSchemaUID: o.flow, CA: o.ca}
}
