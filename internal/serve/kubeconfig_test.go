package serve

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestForeignKubeconfig: the kubeconfig of a cluster that happens to be called kubewake
// stays. A user's changes to a kubeconfig that was written here stay, too.
func TestForeignKubeconfig(t *testing.T) {
	at, ca, token := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234}, []byte("ca"), NewToken()
	dir := t.TempDir()
	for of, change := range map[string]func(c *clientcmdapi.Config){
		"another server": func(c *clientcmdapi.Config) {
			c.Clusters[name].Server = "https://kubewake.example.com:6443"
		},
		"a client certificate": func(c *clientcmdapi.Config) {
			c.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientKeyData: []byte("the only copy")}
		},
		"another token": func(c *clientcmdapi.Config) {
			c.AuthInfos[name].Token = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.c2ln"
		},
		"another user": func(c *clientcmdapi.Config) {
			c.AuthInfos = map[string]*clientcmdapi.AuthInfo{"admin": {Token: token}}
		},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(of, " ", "-"))
		if err := WriteKubeconfig(path, at, ca, token); err != nil {
			t.Fatal(err)
		}
		c, err := clientcmd.LoadFromFile(path)
		if err != nil {
			t.Fatal(err)
		}
		change(c)
		if err := clientcmd.WriteToFile(*c, path); err != nil {
			t.Fatal(err)
		}
		if err := WriteKubeconfig(path, at, ca, token); err == nil {
			t.Errorf("the kubeconfig with %s is replaced", of)
		}
	}
	null := filepath.Join(dir, "null") // a root's rename would replace the device itself
	if err := os.Symlink(os.DevNull, null); err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(null, at, ca, token); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("%s is replaced: %v", os.DevNull, err)
	}
	path := filepath.Join(dir, "own")
	if err := WriteKubeconfig(path, at, ca, token); err != nil {
		t.Fatal(err)
	}
	c, err := clientcmd.LoadFromFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c.Contexts[name].Namespace = "shop" // kubectl config set-context --current --namespace shop
	if err := clientcmd.WriteToFile(*c, path); err != nil {
		t.Fatal(err)
	}
	at.Port++
	if err := WriteKubeconfig(path, at, ca, token); err != nil {
		t.Fatal(err)
	}
	if c, err = clientcmd.LoadFromFile(path); err != nil || c.Contexts[name].Namespace != "shop" ||
		c.Clusters[name].Server != "https://127.0.0.1:1235" {
		t.Errorf("%v %+v", err, c)
	}
}

// TestKubeconfigOfAnother: a kubeconfig that another process has written since this one
// looked is not replaced: its token is not the one that was kept.
func TestKubeconfigOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}
	for i, token := range []string{NewToken(), NewToken()} {
		if err := WriteKubeconfig(path, at, []byte("ca"), token); errors.Is(err, fs.ErrExist) != (i > 0) ||
			err != nil && i == 0 {
			t.Errorf("%d: %v", i, err)
		}
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := WriteKubeconfig(path, at, []byte("ca"), NewToken()); err != nil && runtime.GOOS != "windows" {
		t.Errorf("a token that others may have read: %v", err)
	}
	if all, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(all) != 1 || err != nil {
		t.Error(all, err)
	}
}
