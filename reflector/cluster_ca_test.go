package reflector

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/internal/kubesim"
)

// authority is a self-signed certificate.
func authority(t *testing.T, name string) (*tls.Certificate, []byte) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotAfter: time.Now().Add(time.Hour),
		IsCA:     true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// TestClusterByCA: if the UID may not be read, another CA alone does not mean another
// cluster, but another CA and address do.
func TestClusterByCA(t *testing.T) {
	one, onePEM := authority(t, "one")
	two, twoPEM := authority(t, "two")
	three, threePEM := authority(t, "three")
	var now atomic.Pointer[tls.Certificate]
	now.Store(one)
	sim := kubesim.New(kubesim.Options{InitialRV: 1000})
	sim.FailNext(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/kube-system") }, 1<<30,
		kubesim.Answer(apierrors.NewForbidden(corev1.Resource("namespaces"), "kube-system", errors.New("no"))))
	front := httptest.NewUnstartedServer(sim)
	front.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*now.Load()}}, nil
	}}
	front.StartTLS()
	t.Cleanup(front.Close)
	f := fixtureWith(t, sim, 5, clock.RealClock{}, Options{}, func(cfg *rest.Config) {
		cfg.Host, cfg.TLSClientConfig = front.URL, rest.TLSClientConfig{CAData: slices.Concat(onePEM, twoPEM, threePEM)}
	}, func(lw cache.ListerWatcher) cache.ListerWatcher { return lw })
	f.list()
	first := f.store.State()
	if first.ServerCA == "" || first.ClusterUID != "" {
		t.Fatalf("%+v", first)
	}
	again := func() {
		t.Helper()
		front.CloseClientConnections()
		f.doubtLink()
		f.watch().Stop()
	}
	now.Store(two)
	again()
	if st := f.State(); st.Relists[ReasonCluster] != 0 || len(f.store.ListKeys()) != 5 {
		t.Errorf("a new CA is taken for another cluster: %v", st.Relists)
	}
	if err := sim.Recreate(1_000_000); err != nil {
		t.Fatal(err)
	}
	f.create("theirs")
	now.Store(three)
	f.cluster.server = "https://elsewhere"
	again()
	if st := f.State(); st.Relists[ReasonCluster] != 1 {
		t.Errorf("relists %v", st.Relists)
	}
	if d := f.differs(); d != "" {
		t.Error(d)
	}
	if st := f.store.State(); st.ServerCA == first.ServerCA || st.Server != f.cluster.server || st.ServerCA == "" {
		t.Errorf("%+v", st)
	}
}
