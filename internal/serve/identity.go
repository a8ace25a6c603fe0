package serve

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// identity says whether the link leads to the file's cluster.
type identity struct {
	file   func(context.Context) []string // the UIDs of the file's clusters, none if it is not known
	doubts atomic.Uint64                  // new connections, and requests that failed: the next may lead elsewhere

	asking sync.Mutex // by one at a time
	mu     sync.Mutex
	same   uint64 // doubts at the last answer, or at the last failure to get one
	failed error
	at     time.Time       // of failed
	lead   map[string]bool // connections that lead to the file's cluster
}

// nameOf tells a connection from all others that are open.
func nameOf(c net.Conn) string { return c.LocalAddr().String() + " " + c.RemoteAddr().String() }

// linked is a connection to the server.
type linked struct {
	net.Conn
	of *identity
}

// Close implements net.Conn.
func (c linked) Close() error {
	c.of.leads(c.Conn, false)
	return c.Conn.Close()
}

// CloseWrite is for streams both ways whose client has sent everything.
func (c linked) CloseWrite() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.Close()
	}
	return half.CloseWrite()
}

// leads notes whether a connection is known to lead to the file's cluster.
func (i *identity) leads(c net.Conn, yes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if yes {
		i.lead[nameOf(c)] = true
	} else {
		delete(i.lead, nameOf(c))
	}
}

func (i *identity) isKnown(c net.Conn) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.lead[nameOf(c)]
}

// sameCluster returns an error if the link leads to another cluster than the file's, or
// if that is not known yet. A server that does not show the namespace is believed. So is
// any server as long as the file does not know its cluster.
func (l *Link) sameCluster(ctx context.Context) error {
	c := &l.cluster
	came := time.Now()
	c.asking.Lock()
	defer c.asking.Unlock()
	switch {
	case c.same > 0 && c.same == c.doubts.Load():
		return nil
	case c.at.After(came): // a caller that waited need not ask again
		return c.failed
	}
	ctx = context.WithoutCancel(ctx) // others wait for the answer, too
	want := c.file(ctx)
	if len(want) == 0 {
		return nil
	}
	_, err := l.askCluster(ctx, l.own.any, want)
	c.same, c.failed, c.at = 0, err, time.Now()
	if err == nil {
		c.same = c.doubts.Load()
	}
	return err
}

// checked sends requests over connections that lead to the file's cluster. If a
// connection is made for a request after sameCluster, the server on it is asked first.
type checked struct {
	link *Link
	next http.RoundTripper
	own  bool // with this process's credentials
}

// RoundTrip implements http.RoundTripper.
func (t checked) RoundTrip(r *http.Request) (*http.Response, error) {
	var refused error
	ctx, cancel := context.WithCancelCause(r.Context())
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		// net/http waits for it before it sends anything.
		if refused = t.link.mayUse(ctx, got.Conn, t.next, t.own); refused != nil {
			cancel(refused)
			_ = got.Conn.Close() // nothing may be sent on it
		}
	}})
	resp, err := t.next.RoundTrip(r.WithContext(ctx))
	if refused == nil {
		return resp, err
	}
	if err == nil {
		_ = resp.Body.Close() // it is useless
	}
	return nil, refused
}

// mayUse returns an error unless a connection leads to the file's cluster. If that is not
// known, the server is asked: on the connection itself if it takes several requests at a
// time, otherwise on a connection made after it.
func (l *Link) mayUse(ctx context.Context, conn net.Conn, over http.RoundTripper, own bool) error {
	c := &l.cluster
	if c.isKnown(conn) {
		return nil
	}
	c.asking.Lock()
	defer c.asking.Unlock()
	if c.isKnown(conn) {
		return nil
	}
	fresh, cancel := context.WithCancel(context.Background()) // ctx has the trace of the request that waits
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	want := c.file(fresh)
	if len(want) == 0 {
		return nil
	}
	asked, err := "", error(nil)
	if t, ok := conn.(*tls.Conn); ok && own && t.ConnectionState().NegotiatedProtocol == "h2" {
		asked, err = l.askCluster(fresh, over, want)
	}
	if err == nil && asked != nameOf(conn) {
		utilnet.CloseIdleConnectionsFor(l.own.one)
		_, err = l.askCluster(fresh, l.own.one, want)
	}
	if err != nil {
		return err
	}
	c.leads(conn, true)
	c.same = c.doubts.Load()
	return nil
}

// askCluster asks the server whether it is of one of these clusters, and returns the name of the
// connection that was used. It needs asking.
func (l *Link) askCluster(ctx context.Context, over http.RoundTripper, want []string) (asked string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var conn net.Conn
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
		conn = got.Conn
	}})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet,
		l.to.JoinPath("/api/v1/namespaces", metav1.NamespaceSystem).String(), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := over.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusNotFound:
	case code != http.StatusOK:
		return "", fmt.Errorf("it does not say which cluster it is: %s", resp.Status)
	default:
		var namespace metav1.PartialObjectMetadata
		if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&namespace); err != nil {
			return "", fmt.Errorf("it does not say which cluster it is: %w", err)
		}
		if got := string(namespace.UID); !slices.Contains(want, got) {
			return "", fmt.Errorf("it is of another cluster than the file (kube-system has UID %s, the file's %s); "+
				"give the kubeconfig of the file's", got, strings.Join(want, " and "))
		}
	}
	l.cluster.leads(conn, true)
	return nameOf(conn), nil
}
