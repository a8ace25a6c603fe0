package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"time"
)

// NewToken returns a token that nobody can guess.
func NewToken() string {
	b := make([]byte, 32)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// certifiedBy returns a certificate for an address of this machine, and that of the
// authority that signed it. The authority's key comes from the token. So clients that
// know both can go on after a restart with the same token. One certificate for both would
// not do: Go's verifier accepts no root whose subject and key are also the server's. The
// certificates are always valid, since a device may begin with a wrong clock.
func certifiedBy(token string, ip net.IP) (pair tls.Certificate, ca []byte, err error) {
	raw, err := hkdf.Key(sha256.New, []byte(token), nil, "kubewake: key of the loopback address", 32)
	if err != nil {
		return pair, nil, err
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return pair, nil, fmt.Errorf("a key of the token: %w", err)
	}
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubewake"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	root, err := x509.CreateCertificate(rand.Reader, authority, authority, key.Public(), key)
	if err != nil {
		return pair, nil, err
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, nil, err
	}
	server := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "a file"}, // the serial number is a random one
		NotBefore: authority.NotBefore, NotAfter: authority.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IPAddresses:           []net.IP{ip}, DNSNames: []string{"localhost"},
	}
	leaf, err := x509.CreateCertificate(rand.Reader, server, authority, own.Public(), key)
	if err != nil {
		return pair, nil, err
	}
	pair = tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: own}
	return pair, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root}), nil
}
