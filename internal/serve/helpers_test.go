package serve

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/filetest"
)

func object(namespace, name string, version int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(version),
		UID: types.UID(namespace + name)}
}

// feed returns a queue into the store. Nothing waits for its changes.
func feed(t testing.TB, s *boltstore.Claimed) *fifo.Queue {
	t.Helper()
	q := fifo.New(s, nil)
	var popping sync.WaitGroup
	popping.Go(func() {
		for {
			if _, err := q.Pop(func(any, bool) error { return nil }); err != nil {
				return // closed
			}
		}
	})
	t.Cleanup(func() {
		q.Close()
		popping.Wait()
	})
	return q
}

// filled returns a file with config maps a/x and b/y, and Secret a/s.
func filled(t testing.TB) *boltstore.DB {
	t.Helper()
	db := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{}), "10",
		&corev1.ConfigMap{ObjectMeta: object("a", "x", 1)}, &corev1.ConfigMap{ObjectMeta: object("b", "y", 2)})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("secrets"), &corev1.Secret{}), "10",
		&corev1.Secret{ObjectMeta: object("a", "s", 3), Data: map[string][]byte{"k": []byte("hunter2")}})
	return db
}

// served is a server and how to reach it.
type served struct {
	*Server
	t      testing.TB
	dir    string
	socket *http.Client
}

// start serves a file at a unix socket.
func start(t testing.TB, o Options) *served {
	t.Helper()
	// A socket's path is short.
	dir, err := os.MkdirTemp("", "kw")
	if err != nil {
		t.Fatal(err)
	}
	s := &served{New(o), t, dir, nil}
	sock := filepath.Join(dir, "s")
	if err := s.Unix(sock); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.socket.CloseIdleConnections()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.socket = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", sock)
		},
	}}
	return s
}

// said is the short form of an answer.
type said struct {
	code   int
	header http.Header
	body   string
}

// has says whether the answer has a code and a text.
func (s said) has(code int, text string) bool {
	return s.code == code && strings.Contains(s.body, text)
}

func send(t testing.TB, c *http.Client, method, url string, body io.Reader, header ...string) said {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := c.Do(req)
	if err != nil {
		return said{body: err.Error()}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		b = append(b, err.Error()...)
	}
	return said{resp.StatusCode, resp.Header, string(b)}
}

func get(t testing.TB, c *http.Client, url string, header ...string) said {
	t.Helper()
	return send(t, c, http.MethodGet, url, nil, header...)
}

// local is the base of URLs at the socket.
const local = "http://kubewake"

func (s *served) get(path string, header ...string) said {
	return get(s.t, s.socket, local+path, header...)
}

// fakeClock begins now.
func fakeClock() *clocktesting.FakeClock { return clocktesting.NewFakeClock(time.Now()) }

// within gives requests a time.
func within(d time.Duration) limit {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

// expiring is a context whose deadline has passed once over is closed.
type expiring struct {
	context.Context
	over chan struct{}
}

// Done implements context.Context.
func (e expiring) Done() <-chan struct{} { return e.over }

// Err implements context.Context.
func (e expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func fileOf(t testing.TB, o apifile.Options) File {
	t.Helper()
	return Own(filled(t), o)
}

// upgrade switches protocols over conn, sends a line and returns the answer's line.
func upgrade(t testing.TB, conn net.Conn, path, protocol, authorization string) string {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(conn,
		"POST %s HTTP/1.1\r\nHost: kubewake\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%sContent-Length: 0\r\n\r\n",
		path, protocol, authorization); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		return resp.Status
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		t.Fatal(err)
	}
	line, err := in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

func chmod(t testing.TB, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func modeOf(t testing.TB, path string) os.FileMode {
	t.Helper()
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Mode().Perm()
}

// sharedOf is the file of db, its owner, whose socket answers.
func sharedOf(t *testing.T, db *boltstore.DB) File {
	t.Helper()
	sock, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := NewShared(db.Path(), nil, apifile.Options{})
	t.Cleanup(func() {
		if err := errors.Join(file.Close(), sock.Close()); err != nil {
			t.Error(err)
		}
	})
	return file
}
