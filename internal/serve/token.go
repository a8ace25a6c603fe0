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

// selfSigned returns a certificate for an address of this machine. Its key comes from the
// token: clients that know both go on after a restart with the same token. It is always
// valid, since a device may begin with a wrong clock.
func selfSigned(token string, ip net.IP) (pair tls.Certificate, ca []byte, err error) {
	raw, err := hkdf.Key(sha256.New, []byte(token), nil, "kubewake: key of the loopback address", 32)
	if err != nil {
		return pair, nil, err
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	if err != nil {
		return pair, nil, fmt.Errorf("a key of the token: %w", err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubewake"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
		IPAddresses: []net.IP{ip}, DNSNames: []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, key.Public(), key)
	if err != nil {
		return pair, nil, err
	}
	pair = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return pair, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), nil
}
