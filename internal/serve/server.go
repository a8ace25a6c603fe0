package serve

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/panics"
)

// Options configure a server.
type Options struct {
	// File answers reads.
	File File
	// Link leads to the real server. nil: only the file answers, and only this user gets in.
	Link *Link
	// Limits are DefaultLimits where they are 0.
	Limits Limits
	// Failed is called with each panic of a request. nil calls nothing.
	Failed func(error)
}

// Server serves callers on several addresses.
type Server struct {
	file   File
	link   *Link
	onward http.Handler // the link, for callers
	limits Limits
	errors *log.Logger
	// documents of the server that did not come in time, which inTime gives it
	documents *outage
	inTime    limit
	inOrder   time.Duration   // that answers have to end in order
	ctx       context.Context // of all requests
	breaks    context.CancelFunc
	lasts     context.Context // of those that may last
	ends      context.CancelFunc

	mu      sync.Mutex
	servers []*http.Server
	wg      sync.WaitGroup
}

// New returns a server that listens nowhere yet.
func New(o Options) *Server {
	s := &Server{file: o.File, link: o.Link, limits: o.Limits.withDefaults(),
		errors: panics.Logger(o.Failed), inTime: inTime, inOrder: 2 * time.Second}
	if s.link != nil {
		s.onward = &onward{s.link}
		s.documents = &outage{clock: s.link.reviews.clock} // each one has waited
	}
	s.ctx, s.breaks = context.WithCancel(context.Background())
	s.lasts, s.ends = context.WithCancel(s.ctx)
	return s
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits
	return Limits{
		Connections: cmp.Or(l.Connections, d.Connections), Requests: cmp.Or(l.Requests, d.Requests),
		Watches: cmp.Or(l.Watches, d.Watches), Header: cmp.Or(l.Header, d.Header), Body: cmp.Or(l.Body, d.Body),
		Send: cmp.Or(l.Send, d.Send), Take: cmp.Or(l.Take, d.Take), Stall: cmp.Or(l.Stall, d.Stall),
	}
}

// Unix lets this user in at a unix socket.
func (s *Server) Unix(path string) error {
	l, err := live.Listen(path)
	if err != nil {
		return fmt.Errorf("the socket %s cannot be made: %w", path, err)
	}
	s.serve(l, thisUser, nil)
	return nil
}

// ErrOffLoopback: users of other machines could read the traffic.
var ErrOffLoopback = errors.New("it can be reached from other machines, which needs TLS: give --tls-listen with " +
	"--tls-cert and --tls-key")

// Loopback lets in callers with the token, at an address of this machine only. It returns
// the address and the CA certificate for it: clients send tokens only over TLS.
func (s *Server) Loopback(addr, token string) (at net.Addr, ca []byte, err error) {
	resolved, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, nil, fmt.Errorf("the address to listen at (--listen): %w", err)
	}
	if !resolved.IP.IsLoopback() {
		return nil, nil, fmt.Errorf("%q is not a loopback address: %w", addr, ErrOffLoopback)
	}
	pair, ca, err := certifiedBy(token, resolved.IP)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.ListenTCP("tcp", resolved)
	if err != nil {
		return nil, nil, fmt.Errorf("the address to listen at (--listen): %w", err)
	}
	s.serve(l, public(holderOf(token)),
		&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}})
	return l.Addr(), ca, nil
}

// TLS lets in callers that the real server knows, at any address, and returns the
// address.
func (s *Server) TLS(addr string, o TLSOptions) (net.Addr, error) {
	if s.link == nil {
		return nil, errors.New("the real server authorises callers over TLS, and there is no link to it")
	}
	certs, err := newCertificates(o)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("the address to listen at (--tls-listen): %w", err)
	}
	s.serve(l, public(newAsks(s.link, s.limits).around(s.link.known(certs))), certs.config())
	return l.Addr(), nil
}

// serve accepts callers, over TLS unless cfg is nil.
func (s *Server) serve(l net.Listener, g gate, cfg *tls.Config) {
	srv := &http.Server{
		Handler:     newLimited(s.limits, g, s.answer),
		BaseContext: func(net.Listener) context.Context { return s.ctx },
		// ReadTimeout and WriteTimeout would end watches.
		ReadHeaderTimeout: s.limits.Send, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: s.limits.Header,
		// The least: what is sent of a body that nobody reads waits in memory.
		HTTP2:    &http.HTTP2Config{MaxReceiveBufferPerConnection: 64 << 10},
		ErrorLog: s.errors,
	}
	l = netutil.LimitListener(l, s.limits.Connections)
	s.mu.Lock()
	s.servers = append(s.servers, srv)
	s.mu.Unlock()
	s.wg.Go(func() {
		if cfg == nil {
			_ = srv.Serve(l) // until it is closed
			return
		}
		srv.TLSConfig = cfg
		_ = srv.ServeTLS(l, "", "")
	})
}

// Close ends all connections but those that were upgraded, and these soon after. Watches of
// the file end in order, and other reads have a moment for their answers.
func (s *Server) Close() error {
	defer s.breaks() // after the connections: a request that was cut off might be answered with a wrong reason
	s.ends()
	s.mu.Lock()
	servers := s.servers
	s.servers = nil
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), s.inOrder)
	defer cancel()
	errs := make([]error, len(servers))
	for i, srv := range servers {
		s.wg.Go(func() {
			if srv.Shutdown(ctx) != nil {
				errs[i] = srv.Close()
			}
		})
	}
	s.wg.Wait()
	return errors.Join(errs...)
}
