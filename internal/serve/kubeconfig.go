package serve

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// name is that of cluster, user and context in a kubeconfig.
const name = "kubewake"

// WriteKubeconfig replaces the file at path by one that only this user can read, with the
// address of a server, its certificate and a token for it. It replaces only a kubeconfig
// of an earlier life, whose namespace stays: see earlier. token is the one of Kept. If
// another process has written a kubeconfig since then, the error is fs.ErrExist.
func WriteKubeconfig(path string, server net.Addr, ca []byte, token string) (err error) {
	_, err = os.Lstat(path)
	none := errors.Is(err, fs.ErrNotExist)
	was, err := earlier(path)
	if err != nil {
		return err
	}
	if kept, at := Kept(path); at != "" && kept != token {
		return fs.ErrExist
	}
	c := clientcmdapi.NewConfig()
	c.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + server.String(), CertificateAuthorityData: ca}
	c.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token}
	c.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	if was != nil {
		c.Contexts[name].Namespace = was.Contexts[name].Namespace // as the user has set it
	}
	c.CurrentContext = name
	b, err := clientcmd.Write(*c)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if none {
		if err = os.Link(f.Name(), path); errors.Is(err, fs.ErrExist) { // other errors: the file system has no links
			return err
		} else if err == nil {
			return os.Remove(f.Name())
		}
	}
	return os.Rename(f.Name(), path)
}

// earlier is the kubeconfig at path that WriteKubeconfig has written, nil if there is no
// file. Any other file is an error, such as the user's own kubeconfig, even of a cluster
// with this name, or the file that is served.
func earlier(path string) (*clientcmdapi.Config, error) {
	st, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case !st.Mode().IsRegular(): // a device would be replaced, and a pipe without a writer read for ever
		return nil, fmt.Errorf("%s is not a regular file, so it is not replaced; choose another path", path)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(b) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := clientcmd.Load(b)
	if err == nil && len(c.Clusters) == 1 && len(c.Contexts) == 1 && len(c.AuthInfos) == 1 {
		cluster, context, user := c.Clusters[name], c.Contexts[name], c.AuthInfos[name]
		if cluster != nil && context != nil && user != nil && tokenForm.MatchString(user.Token) &&
			loopback(cluster.Server) {
			return c, nil
		}
	}
	return nil, fmt.Errorf("%s is not a kubeconfig that kubewake has written, so it is not replaced; choose "+
		"another path", path)
}

// loopback says whether a URL is that of an address of this machine.
func loopback(server string) bool {
	addr, ok := strings.CutPrefix(server, "https://")
	at, err := netip.ParseAddrPort(addr)
	return ok && err == nil && at.Addr().IsLoopback()
}

// tokenForm is the form of NewToken's tokens.
var tokenForm = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// Kept returns the token and the address of a kubeconfig that an earlier life has
// written, so that its clients go on. If there is none, or somebody else may have read
// it, the token is new and there is no address.
func Kept(path string) (token, addr string) {
	st, err := os.Lstat(path)
	if err != nil || !st.Mode().IsRegular() || runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 ||
		!ownedBySelf(st) {
		return NewToken(), ""
	}
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return NewToken(), ""
	}
	user, cluster := c.AuthInfos[name], c.Clusters[name]
	if user == nil || cluster == nil || !tokenForm.MatchString(user.Token) {
		return NewToken(), ""
	}
	addr, _ = strings.CutPrefix(cluster.Server, "https://")
	return user.Token, addr
}

// Answers says whether a process serves at the address of a kubeconfig that WriteKubeconfig
// has written, with the certificate that is in it.
func Answers(path string) bool {
	cfg, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return false
	}
	cfg = rest.AnonymousClientConfig(cfg) // it is refused at once
	cfg.Timeout = 2 * time.Second
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	resp, err := client.Get(cfg.Host)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // it was only asked whether it answers
	return true
}
