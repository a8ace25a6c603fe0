package apiserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// startTimeout bounds each start of the two processes. A start takes seconds, on a loaded
// machine many.
const startTimeout = 2 * time.Minute

// Options of a server. The zero value is a server with the users [Admin],
// [Restricted] and [Other] that records requests.
type Options struct {
	// Users known to the server besides Admin, without any right until
	// [Server.Grant]. Default: Restricted and Other.
	Users []string
	// Flags are added to those of kube-apiserver and win over them.
	Flags []string
	// NoAudit records no requests, for benchmarks.
	NoAudit bool
}

// Server is a kube-apiserver and its etcd. Its address and its certificate
// stay the same for its whole life. The methods that start, stop or change the
// server are for one goroutine at a time; all others can be used by many.
type Server struct {
	opts      Options
	assets    string
	dir       string
	port      int // of kube-apiserver
	etcdPort  int
	peerPort  int
	snapshots int
	rights    map[string][]rbacv1.PolicyRule // see Grant

	etcd      *process // nil while stopped
	apiserver *process
}

// Start runs a server for the duration of a test. It skips the test in short mode and
// fails it if there are no binaries.
func Start(t testing.TB, opts Options) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kube-apiserver: skipped in short mode")
	}
	s, err := Run(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() && s.apiserver != nil {
			t.Logf("the last lines of kube-apiserver:\n%s", s.apiserver.tail())
		}
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Run starts a server outside of a test. ctx bounds only the start: the server runs until
// [Server.Stop].
func Run(ctx context.Context, opts Options) (*Server, error) {
	if opts.Users == nil {
		opts.Users = []string{Restricted, Other}
	}
	bin, err := assets()
	if err != nil {
		return nil, err
	}
	for tries := 3; ; tries-- {
		// The name shows whose folder it is, in case the program is killed.
		dir, err := os.MkdirTemp("", fmt.Sprintf("kubewake-apiserver-%d-", os.Getpid()))
		if err != nil {
			return nil, err
		}
		s := &Server{opts: opts, assets: bin, dir: dir, rights: map[string][]rbacv1.PolicyRule{}}
		if err = s.run(ctx); err == nil {
			return s, nil
		}
		if err = errors.Join(err, s.Stop()); tries == 1 || !strings.Contains(err.Error(), "address already in use") {
			return nil, err
		}
		// Another program has taken a port between our look and our use.
	}
}

func (s *Server) run(ctx context.Context) error {
	for _, port := range []*int{&s.port, &s.etcdPort, &s.peerPort} {
		var err error
		if *port, err = freePort(); err != nil {
			return err
		}
	}
	if err := s.writeFiles(); err != nil {
		return err
	}
	if err := s.startEtcd(ctx); err != nil {
		return err
	}
	return s.StartAPIServer(ctx)
}

// Stop ends both processes and removes all their files.
func (s *Server) Stop() error {
	s.StopAPIServer()
	s.stopEtcd()
	return os.RemoveAll(s.dir)
}

// RestartAPIServer stops kube-apiserver and starts it again at the same address. Then its
// watch windows are empty: every watch from an earlier version is answered with 410.
func (s *Server) RestartAPIServer(ctx context.Context) error {
	s.StopAPIServer()
	return s.StartAPIServer(ctx)
}

// StopAPIServer kills kube-apiserver: every connection breaks at once. (A server that is
// asked to end would wait a minute for open watches.) It does nothing to a stopped
// server.
func (s *Server) StopAPIServer() {
	s.apiserver.kill()
	s.apiserver = nil
}

// StartAPIServer starts kube-apiserver and waits until it is ready and has created its
// namespaces. It does nothing to a running server. Resource versions have moved on since
// the server was stopped, as they do in a cluster. The first request for a type may still
// get 429 for a moment.
func (s *Server) StartAPIServer(ctx context.Context) error {
	if s.apiserver != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.advance(ctx); err != nil {
		return err
	}
	p, err := startProcess("kube-apiserver", filepath.Join(s.assets, "kube-apiserver"), s.path("kube-apiserver.log"),
		s.apiserverFlags()...)
	if err != nil {
		return err
	}
	s.apiserver = p
	return p.until(ctx, s.ready)
}

func (s *Server) apiserverFlags() []string {
	flags := []string{
		"--etcd-servers=" + s.etcdURL(),
		"--bind-address=127.0.0.1",
		fmt.Sprintf("--secure-port=%d", s.port),
		"--cert-dir=" + s.path("certs"),
		"--token-auth-file=" + s.path(tokenFile),
		"--authorization-mode=RBAC",
		"--anonymous-auth=false",
		"--service-account-key-file=" + s.path(keyFile),
		"--service-account-signing-key-file=" + s.path(keyFile),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-cluster-ip-range=10.0.0.0/24",
		// No controller makes service accounts, no kubelet taints nodes.
		"--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
		"--endpoint-reconciler-type=none",
		"--profiling=false",
	}
	if !s.opts.NoAudit {
		flags = append(flags,
			"--audit-policy-file="+s.path(policyFile),
			"--audit-log-path="+s.path(auditFile),
			"--audit-log-mode=blocking",
			"--audit-log-maxsize=0",
		)
	}
	return append(flags, s.opts.Flags...)
}

// ready returns nil when the server is completely up.
func (s *Server) ready(ctx context.Context) error {
	cfg := s.Config()
	if len(cfg.CAData) == 0 {
		return errors.New("no certificate yet")
	}
	cfg.Timeout = 5 * time.Second
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	if err := client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	for _, ns := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		if _, err := client.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) startEtcd(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	peer := fmt.Sprintf("http://127.0.0.1:%d", s.peerPort)
	p, err := startProcess("etcd", filepath.Join(s.assets, "etcd"), s.path("etcd.log"),
		"--name=etcd",
		"--data-dir="+s.path(etcdDir),
		"--listen-client-urls="+s.etcdURL(),
		"--advertise-client-urls="+s.etcdURL(),
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=etcd="+peer,
		"--unsafe-no-fsync",
		"--heartbeat-interval=10",
		"--election-timeout=100",
		"--quota-backend-bytes=4294967296",
		"--log-level=warn",
	)
	if err != nil {
		return err
	}
	s.etcd = p
	return p.until(ctx, s.etcdReady)
}

func (s *Server) stopEtcd() {
	s.etcd.kill()
	s.etcd = nil
}

func (s *Server) etcdReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.etcdURL()+"/health", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}

func (s *Server) etcdURL() string { return fmt.Sprintf("http://127.0.0.1:%d", s.etcdPort) }

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

// freePort returns an unused port, below those that the kernel gives to clients: a
// stopped server must get its port back.
func freePort() (int, error) {
	var err error
	for range 100 {
		port := 20000 + rand.IntN(12000)
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port: %w", err)
}

// FreeAddress returns an address of this machine without a listener. Its port stays free as
// that of a stopped server does.
func FreeAddress(t testing.TB) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", port)
}
