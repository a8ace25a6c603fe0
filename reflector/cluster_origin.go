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
)

// origin notes which server answers some requests. As long as the connection is the same, so
// is the server's process, and with it the timeline.
type origin struct {
	dated func(time.Time) // gets the server's time, if not nil

	mu   sync.Mutex
	conn string
	anew bool // it has changed
	self bool // it leads to this machine
}

type originKey struct{}

// trace returns a context whose requests origin notes.
func (o *origin) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(context.WithValue(ctx, originKey{}, o),
		&httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			o.mu.Lock()
			defer o.mu.Unlock()
			conn := info.Conn.LocalAddr().String() + " " + info.Conn.RemoteAddr().String()
			o.anew = o.anew || o.conn != "" && o.conn != conn
			o.conn = conn
			o.self = ofThisMachine(info.Conn)
		}})
}

// noteAnswer notes the server's time in the answer to a list.
func noteAnswer(req *http.Request, resp *http.Response) {
	o, _ := req.Context().Value(originKey{}).(*origin)
	if o == nil || o.dated == nil || o.here() {
		return
	}
	if _, err := sourceOf(req.URL); err != nil {
		return
	}
	if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		o.dated(t)
	}
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

// over is the connection, "" for clients that do not use HTTP and for a nil origin.
func (o *origin) over() string {
	if o == nil {
		return ""
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conn
}

// reconnected says whether the connection has changed since it was last asked: one may be
// lost while no request is under way, and if it breaks, a client repeats a request by itself.
func (o *origin) reconnected() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	anew := o.anew
	o.anew = false
	return anew
}
