package serve

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"k8s.io/client-go/util/cert"
)

// TLSOptions are the files of a listener, which are read again when they change unless they
// are pipes, and the callers that it lets in.
type TLSOptions struct {
	Cert, Key string
	// ClientCA is the file with the CAs whose certificates are believed; "" believes none.
	ClientCA string
	// Tokens lets in callers with a token that the real server accepts.
	Tokens bool
	// Failed is called for files that cannot be used. The earlier ones are used then.
	Failed func(error)
}

// certificates are the files as they are now.
type certificates struct {
	o TLSOptions

	mu   sync.Mutex
	now  *tls.Config
	seen []stamp
}

// stamp tells one state of a file from another.
type stamp struct {
	at, size int64 // at in nanoseconds
}

func newCertificates(o TLSOptions) (*certificates, error) {
	if o.ClientCA == "" && !o.Tokens {
		return nil, errors.New("nobody could get in over TLS: give --client-ca, --token-review or both")
	}
	c := &certificates{o: o}
	var err error
	if c.now, err = c.load(); err != nil {
		return nil, err
	}
	c.seen = c.stamps()
	return c, nil
}

func (c *certificates) stamps() (all []stamp) {
	for _, path := range []string{c.o.Cert, c.o.Key, c.o.ClientCA} {
		var s stamp
		if st, err := os.Stat(path); err == nil {
			s = stamp{st.ModTime().UnixNano(), st.Size()}
		}
		all = append(all, s)
	}
	return all
}

// reload is load, but reads no pipe: handshakes would wait for its writer. At the start one
// is read, as a shell makes it for <(...).
func (c *certificates) reload() (*tls.Config, error) {
	for _, path := range []string{c.o.Cert, c.o.Key, c.o.ClientCA} {
		if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is no regular file and cannot be read again: put one in its place, or restart",
				path)
		}
	}
	return c.load()
}

func (c *certificates) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.o.Cert, c.o.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate and its key (--tls-cert, --tls-key): %w", err)
	}
	cfg := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}, Certificates: []tls.Certificate{pair},
		// A ticket would outlive a CA that was taken away.
		SessionTicketsDisabled: true,
	}
	if c.o.ClientCA != "" {
		cas, err := cert.CertsFromFile(c.o.ClientCA)
		if err != nil {
			return nil, fmt.Errorf("the CAs of clients (--client-ca): %w", err)
		}
		cfg.ClientAuth, cfg.ClientCAs = tls.VerifyClientCertIfGiven, x509.NewCertPool()
		for _, ca := range cas {
			cfg.ClientCAs.AddCert(ca)
		}
	}
	return cfg, nil
}

// current returns the files as they are now, or as they were when they could last be
// used.
func (c *certificates) current() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen := c.stamps(); !slices.Equal(seen, c.seen) {
		c.seen = seen
		now, err := c.reload()
		switch {
		case err == nil:
			c.now = now
		case c.o.Failed != nil:
			c.o.Failed(fmt.Errorf("those from before stay in use: %w", err))
		}
	}
	return c.now
}

// config is for a server. Each handshake uses the files of that time.
func (c *certificates) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			return c.current(), nil
		}}
}

// verify verifies a client's certificate as a handshake would now: a connection may be
// older than the CAs, and may outlive the certificate.
func (c *certificates) verify(chain []*x509.Certificate) error {
	o := x509.VerifyOptions{Roots: c.current().ClientCAs, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, cert := range chain[1:] {
		o.Intermediates.AddCert(cert)
	}
	_, err := chain[0].Verify(o)
	return err
}
