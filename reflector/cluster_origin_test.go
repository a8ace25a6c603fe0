package reflector

import (
	"net"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"
)

// addressed is a connection with two given addresses.
type addressed struct {
	net.Conn
	local, remote net.Addr
}

func (c addressed) LocalAddr() net.Addr  { return c.local }
func (c addressed) RemoteAddr() net.Addr { return c.remote }

// TestServerHere: a server on this machine has its clock, and does not vouch for
// it. Another machine's does.
func TestServerHere(t *testing.T) {
	tcp := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 6443} }
	unix := &net.UnixAddr{Net: "unix", Name: "/run/kube.sock"}
	for _, tc := range []struct {
		name          string
		local, remote net.Addr
		vouches       bool
	}{
		{"another machine", tcp("192.0.2.1"), tcp("192.0.2.2"), true},
		{"another machine, IPv6", tcp("2001:db8::1"), tcp("2001:db8::2"), true},
		{"loopback", tcp("127.0.0.1"), tcp("127.0.0.1"), false},
		{"loopback, other address", tcp("127.0.0.1"), tcp("127.0.0.53"), false},
		{"loopback, IPv6", tcp("::1"), tcp("::1"), false},
		{"its own address", tcp("192.0.2.1"), tcp("192.0.2.1"), false},
		{"socket", unix, unix, false},
	} {
		told := false
		l := &origin{dated: func(time.Time) { told = true }}
		req, err := http.NewRequestWithContext(l.trace(t.Context()), http.MethodGet,
			"https://server/api/v1/configmaps", nil)
		if err != nil {
			t.Fatal(err)
		}
		httptrace.ContextClientTrace(req.Context()).GotConn(httptrace.GotConnInfo{Conn: addressed{local: tc.local,
			remote: tc.remote}})
		noteAnswer(req, &http.Response{Header: http.Header{"Date": {time.Now().UTC().Format(http.TimeFormat)}}})
		if told != tc.vouches {
			t.Errorf("%s: vouches is %v", tc.name, told)
		}
	}
}
