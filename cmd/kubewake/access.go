package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/serve"
)

// access is where a file's API is served, and whom it lets in.
type access struct {
	socket, listen, kubeconfig string
	tlsListen                  string
	tls                        serve.TLSOptions
	secrets                    bool
	reads                      string
	offline, warnAfter         time.Duration
	limits                     serve.Limits
	unsafe                     bool // --allow-unsafe-path, of the file
}

// confirmation is how long a read waits for the server.
const confirmation = 5 * time.Second

const (
	beside = "beside the file" // the default of paths
	nobody = "none"
)

func (a *access) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.socket, "socket", beside, "the unix socket for this user; FILE.api.sock by default, or none")
	f.StringVar(&a.listen, "listen", "127.0.0.1:0",
		"the loopback address for callers with the token in the kubeconfig; port 0 takes the last port again, or a "+
			"free one; none turns it off")
	f.StringVar(&a.kubeconfig, "write-kubeconfig", beside,
		"write a kubeconfig for the loopback address to this path; FILE.kubeconfig by default")
	f.StringVar(&a.tlsListen, "tls-listen", "", "the address for other users")
	f.StringVar(&a.tls.Cert, "tls-cert", "", "the certificate for --tls-listen; it is read again when it changes")
	f.StringVar(&a.tls.Key, "tls-key", "", "the certificate's key")
	f.StringVar(&a.tls.ClientCA, "client-ca", "",
		"let in callers with a certificate of these CAs: the user is its common name, groups are its organizations")
	f.BoolVar(&a.tls.Tokens, "token-review", false, "let in callers with a token that the server accepts")
	f.BoolVar(&a.secrets, "secrets", false, "serve the file's Secrets")
	f.StringVar(&a.reads, "reads", "fresh",
		"how reads without a resourceVersion are answered: fresh waits up to 5s until the server confirms the "+
			"file's state, file does not")
	f.DurationVar(&a.offline, "offline", time.Hour,
		"while the server cannot be asked, allow other users what it allowed them within this time")
	f.DurationVar(&a.warnAfter, "warn-after", 5*time.Minute, "warn clients of data that is older")
	f.IntVar(&a.limits.Connections, "max-connections", serve.DefaultLimits.Connections,
		"connections at a time, to each address; others wait")
	f.IntVar(&a.limits.Requests, "max-requests", serve.DefaultLimits.Requests,
		"requests at a time, besides watches, to each address; others get 429")
	f.IntVar(&a.limits.Watches, "max-watches", serve.DefaultLimits.Watches,
		"watches and streams at a time, to each address; others get 429")
}

// check refuses flags that contradict each other.
func (a *access) check() error {
	switch {
	case a.reads != "fresh" && a.reads != "file":
		return fmt.Errorf("--reads is fresh or file, not %q", a.reads)
	case a.socket == "" || a.kubeconfig == "":
		return errors.New("--socket and --write-kubeconfig are paths, or --socket none")
	case a.limits.Connections < 1 || a.limits.Requests < 1 || a.limits.Watches < 1:
		return errors.New("--max-connections, --max-requests and --max-watches must be at least 1")
	case a.offline < 0:
		return errors.New("--offline must not be negative")
	case a.tlsListen == "" && (a.tls.Cert != "" || a.tls.Key != "" || a.tls.ClientCA != "" || a.tls.Tokens):
		return errors.New("--tls-cert, --tls-key, --client-ca and --token-review are for --tls-listen")
	case a.tlsListen != "" && (a.tls.Cert == "" || a.tls.Key == ""):
		return errors.New("--tls-listen needs --tls-cert and --tls-key")
	case a.socket == nobody && a.listen == nobody && a.tlsListen == "":
		return errors.New("nobody could get in: give --socket, --listen or --tls-listen")
	}
	return nil
}

// options are how the file is served.
func (a *access) options(cluster string, l *klog.Logger) apifile.Options {
	o := apifile.Options{Cluster: cluster, Secrets: a.secrets, WarnAfter: a.warnAfter, Logger: l}
	if a.reads == "fresh" {
		o.Fresh = confirmation
	}
	if o.WarnAfter == 0 {
		o.WarnAfter = time.Nanosecond // always
	}
	return o
}

// link leads to the server of a config. As soon as clusters returns any, the server must
// be of one of them.
func (a *access) link(cfg *rest.Config, clusters func(context.Context) []string) (*serve.Link, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.WrapTransport = nil // the wrapper that counts and sifts answers cannot pass on streams
	return serve.NewLink(cfg, serve.LinkOptions{Offline: a.offline, Clusters: clusters})
}

// serve lets callers in until end is called. path is the file's path.
func (a *access) serve(file serve.File, link *serve.Link, path string, logf func(string, ...any)) (
	end func() error, err error,
) {
	for _, given := range []string{a.socket, a.kubeconfig} {
		if a.unsafe || given == beside || given == nobody { // the file's folder was looked at when it was opened
			continue
		}
		if err := serve.CheckFolder(given); err != nil {
			return nil, fmt.Errorf("--socket and --write-kubeconfig: %w (or give --allow-unsafe-path)", err)
		}
	}
	failed := func(err error) { logf("%s", oneLine(err)) }
	s := serve.New(serve.Options{File: file, Link: link, Limits: a.limits, Failed: failed})
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := a.serveSocket(s, path, logf); err != nil {
		return nil, err
	}
	if err := a.serveLoopback(s, path, logf); err != nil {
		return nil, err
	}
	if a.tlsListen != "" {
		if link == nil {
			return nil, errors.New("--tls-listen needs --pass-through: other users are authorised by the server")
		}
		o := a.tls
		o.Failed = failed
		at, err := s.TLS(a.tlsListen, o)
		if err != nil {
			return nil, err
		}
		logf("serving %s at https://%s, for other users", path, at)
	}
	return s.Close, nil
}

func (a *access) serveSocket(s *serve.Server, path string, logf func(string, ...any)) error {
	switch a.socket {
	case nobody:
		return nil
	case beside:
		sock := path + ".api.sock"
		if err := s.Unix(sock); err != nil {
			if a.listen == nobody && a.tlsListen == "" {
				return err // there is no other way in
			}
			logf("there is no socket beside the file: %s", oneLine(err))
			return nil
		}
		logf("serving %s at the socket %s, for this user", path, sock)
		return nil
	}
	if err := s.Unix(a.socket); err != nil {
		return err
	}
	logf("serving %s at the socket %s, for this user", path, a.socket)
	return nil
}

func (a *access) serveLoopback(s *serve.Server, path string, logf func(string, ...any)) error {
	if a.listen == nobody {
		return nil
	}
	kubeconfig := a.kubeconfig
	if kubeconfig == beside {
		kubeconfig = path + ".kubeconfig"
	}
	token, earlier := serve.Kept(kubeconfig)
	if earlier != "" && serve.Answers(kubeconfig) {
		return another(kubeconfig, earlier)
	}
	var at net.Addr
	var ca []byte
	err := errors.New("no earlier address")
	if portStays(a.listen, earlier) {
		if at, ca, err = s.Loopback(earlier, token); err != nil && serve.Answers(kubeconfig) {
			return another(kubeconfig, earlier) // it has begun in the meantime
		}
	}
	if err != nil {
		at, ca, err = s.Loopback(a.listen, token)
	}
	if err != nil {
		return err
	}
	err = serve.WriteKubeconfig(kubeconfig, at, ca, token)
	if _, its := serve.Kept(kubeconfig); errors.Is(err, fs.ErrExist) && its != "" {
		return another(kubeconfig, its)
	}
	if kept, addr := serve.Kept(kubeconfig); err != nil && kept == token && addr == at.String() {
		logf("the kubeconfig stays as it is, and leads here: %s", oneLine(err)) // the disk may be full
		err = nil
	}
	if err != nil {
		return fmt.Errorf("the kubeconfig cannot be written (--write-kubeconfig): %w", err)
	}
	logf("serving %s at https://%s; kubectl --kubeconfig %s", path, at, kubeconfig)
	return nil
}

func another(kubeconfig, at string) error {
	return fmt.Errorf("another process serves, at https://%s, and %s is its kubeconfig; end it, or give another "+
		"--write-kubeconfig, or --listen none", at, kubeconfig)
}

// portStays says whether an address leaves the port open, so that the earlier port can
// stay.
func portStays(listen, earlier string) bool {
	now, err := net.ResolveTCPAddr("tcp", listen)
	if err != nil {
		return false
	}
	was, err := net.ResolveTCPAddr("tcp", earlier)
	return err == nil && now.Port == 0 && now.IP.Equal(was.IP)
}
