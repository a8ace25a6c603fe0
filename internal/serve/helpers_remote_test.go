package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"},
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// issue makes a certificate for a client, or for a server at 127.0.0.1.
func (a *authority) issue(t testing.TB, serial int64, subject pkix.Name) (cert, key []byte) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{SerialNumber: big.NewInt(serial), Subject: subject, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, form, a.cert, k.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	kder, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: kder})
}

func write(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// remote is a TLS listener with clients.
type remote struct {
	*served
	addr string
	ca   *authority
	tls  TLSOptions
}

func (s *served) remote(clients *authority) *remote {
	s.t.Helper()
	r := &remote{served: s, ca: newAuthority(s.t)}
	cert, key := r.ca.issue(s.t, 2, pkix.Name{CommonName: "server"})
	r.tls = TLSOptions{Cert: write(s.t, filepath.Join(s.dir, "crt"), cert),
		Key: write(s.t, filepath.Join(s.dir, "key"), key), Tokens: true,
		ClientCA: write(s.t, filepath.Join(s.dir, "ca"), clients.pem()), Failed: func(err error) { s.t.Error(err) }}
	at, err := s.TLS("127.0.0.1:0", r.tls)
	if err != nil {
		s.t.Fatal(err)
	}
	r.addr = "https://" + at.String()
	return r
}

// client returns a client with a certificate of ca, unless ca is nil.
func (r *remote) client(ca *authority, subject pkix.Name) *http.Client {
	r.t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(r.ca.cert)
	cfg := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if ca != nil {
		pair, err := tls.X509KeyPair(ca.issue(r.t, 3, subject))
		if err != nil {
			r.t.Fatal(err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	t := &http.Transport{TLSClientConfig: cfg, ForceAttemptHTTP2: true}
	r.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, Timeout: time.Minute}
}
