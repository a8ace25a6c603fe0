//go:build unix

package serve

import (
	"crypto/x509/pkix"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestPipeAsCertificate: a pipe in place of a file would keep all handshakes waiting for its
// writer. It is read at the start only, as from a shell's <(...), and never while others wait.
func TestPipeAsCertificate(t *testing.T) {
	dir := t.TempDir()
	crt, key := newAuthority(t).issue(t, 2, pkix.Name{CommonName: "server"})
	var failed error
	o := TLSOptions{Cert: write(t, filepath.Join(dir, "crt"), crt), Key: write(t, filepath.Join(dir, "key"), key),
		Tokens: true, Failed: func(err error) { failed = err }}
	c, err := newCertificates(o)
	if err != nil {
		t.Fatal(err)
	}
	before := c.current()
	if err := syscall.Unlink(o.Key); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(o.Key, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c.current() != before {
			t.Error("the earlier certificate is not used any more")
		}
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("handshakes wait for a writer of the pipe")
	}
	if failed == nil || !strings.Contains(failed.Error(), "is no regular file") {
		t.Error(failed)
	}
}
