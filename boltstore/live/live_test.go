package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/listing"
)

var secrets = boltstore.Source{Version: "v1", Resource: "secrets", Form: boltstore.FormTyped}

func secret(i int, size int) *corev1.Secret {
	name := fmt.Sprintf("s%05d", i)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", i%3), Name: name, UID: types.UID(name),
			ResourceVersion: fmt.Sprint(i + 1),
			Annotations:     map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "hunter2"}},
		Data: map[string][]byte{"password": []byte(strings.Repeat("hunter2", size/7+1))},
	}
}

// world is a file with n secrets, and the store that owns them.
func world(t testing.TB, path string, n, size int) (*boltstore.DB, *boltstore.Claimed) {
	t.Helper()
	return worldIn(t, path, boltstore.Options{}, n, size)
}

func worldIn(t testing.TB, path string, o boltstore.Options, n, size int) (*boltstore.DB, *boltstore.Claimed) {
	t.Helper()
	db, err := boltstore.Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: secrets, Example: &corev1.Secret{},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Release()
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	relist(t, s, n, size, "100")
	return db, s
}

// relist makes n secrets the contents of the source.
func relist(t testing.TB, s *boltstore.Claimed, n, size int, version string) {
	t.Helper()
	r, err := s.Upstream.BeginRelist(boltstore.RelistOptions{
		OnError: func(_ kruntime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := r.Page([]kruntime.Object{secret(i, size)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.Commit(version, time.Now()); err != nil {
		t.Fatal(err)
	}
}

func start(t testing.TB, db *boltstore.DB, l limits) *server {
	t.Helper()
	s, err := serve(db, Options{Sources: func() map[string]string {
		return map[string]string{"secrets/v1": "live"}
	}}, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeServer(t, s) })
	return s
}

func closeServer(t testing.TB, s *server) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- s.Close() }()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("the server does not end")
	}
}

func dial(t *testing.T, path string) *Client {
	t.Helper()
	c, err := Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func testPath(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "live-") // t.TempDir's may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "test.db")
}

// get asks the API for a path. The options are those of Client.API.
func get(t *testing.T, c *Client, path string, o apifile.Options, otherwise bool) (*http.Response, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://x"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c.API(r, o, otherwise)
}

const secretsPath = "/api/v1/secrets"

// listed are the secrets that the API lists.
func listed(t *testing.T, c *Client) []corev1.Secret {
	t.Helper()
	resp, err := get(t, c, secretsPath, apifile.Options{Secrets: true}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var list corev1.SecretList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return list.Items
}

// TestServed: the socket has mode 0600 and answers the API, as the options say, and the state.
func TestServed(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 700, 10)
	relist(t, s, 699, 10, "200")
	start(t, db, defaultLimits)
	c := dial(t, path)
	if st, err := os.Lstat(path + ".sock"); err != nil || st.Mode().Perm() != 0o600 {
		t.Fatal(st, err)
	}
	if all := listed(t, c); len(all) != 699 || len(all[0].Data) != 1 {
		t.Errorf("%d secrets", len(all))
	}
	other := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}
	for _, tc := range []struct {
		o         apifile.Options
		otherwise bool
		code      int // 0: ErrNotKept
	}{
		{apifile.Options{Secrets: true, Source: secrets.ID()}, true, 200},
		{apifile.Options{Secrets: true, Source: other.ID()}, true, 0},
		{apifile.Options{Secrets: true, Cluster: "other"}, true, 0}, {apifile.Options{}, true, 0},
		{apifile.Options{}, false, 403},
	} {
		resp, err := get(t, c, secretsPath, tc.o, tc.otherwise)
		if tc.code == 0 {
			if !errors.Is(err, ErrNotKept) {
				t.Errorf("%+v: %v", tc, err)
			}
			continue
		}
		if err != nil || resp.StatusCode != tc.code {
			t.Fatalf("%+v: %v, %v", tc, resp, err)
		}
		_ = resp.Body.Close()
	}
	st, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o := st.Owner; o == nil || o.PID != os.Getpid() || o.Sources["secrets/v1"] != "live" {
		t.Errorf("owner %+v", st.Owner)
	}
	of, err := StatusOf(db)
	if err != nil || len(st.Sources) != 1 || st.Sources[0].Objects != 699 || st.Bytes != of.Bytes {
		t.Errorf("%+v, from the file %+v %v", st, of, err)
	}
}

// TestPathsOutside: a request to the API, which may be anybody's that is passed on, gets neither
// the copy of the file nor the state, whatever its path.
func TestPathsOutside(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 3, 10)
	start(t, db, defaultLimits)
	c := dial(t, path)
	for _, p := range []string{snapshotPath, statusPath} {
		resp, err := get(t, c, p, apifile.Options{}, false)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusNotFound || len(b) > 100 {
			t.Errorf("%s: %s, %d bytes, %v", p, resp.Status, len(b), err)
		}
		_ = resp.Body.Close()
	}
}

// TestSnapshot: a snapshot is a sound file with everything in it, even if a writer
// works meanwhile, and leaves nothing behind.
func TestSnapshot(t *testing.T) {
	path := testPath(t)
	db, s := world(t, path, 300, 500)
	start(t, db, defaultLimits)
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			o := secret(i%300, 500)
			o.ResourceVersion = fmt.Sprint(1000 + i)
			if err := s.Update(o); err != nil {
				done <- err
				return
			}
		}
	}()
	c := dial(t, path)
	for i := range 5 {
		to := fmt.Sprint(path, i)
		f, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(c.Snapshot(t.Context(), f), f.Close()); err != nil {
			t.Fatal(err)
		}
		copied, err := boltstore.Open(to, boltstore.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		r, err := copied.Check()
		if err != nil || !r.Sound() || r.Sources[0].Objects != 300 {
			t.Errorf("%+v %v", r, err)
		}
		if err := copied.Close(); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestSnapshotEnds: a snapshot ends with its context, in the middle of the copy.
func TestSnapshotEnds(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 300, 5000)
	start(t, db, defaultLimits)
	ctx, cancel := context.WithCancel(t.Context())
	if err := dial(t, path).Snapshot(ctx, calls(cancel)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// calls is a writer that calls a function with each piece.
type calls func()

// Write implements io.Writer.
func (c calls) Write(p []byte) (int, error) {
	c()
	return len(p), nil
}

// raw sends a request that this package's client would not send. The server may have hung up
// already.
func raw(t *testing.T, path, request string) *net.UnixConn {
	t.Helper()
	c, err := net.Dial("unix", path+".sock")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, request); err != nil && !errors.Is(err, syscall.EPIPE) {
		t.Fatal(err)
	}
	return c.(*net.UnixConn)
}

var shortLimits = limits{conns: 4, header: 4 << 10, read: 200 * time.Millisecond, write: 200 * time.Millisecond}

// slowToRead are limits for tests whose clients send at once, however busy the machine is.
func slowToRead() limits {
	l := shortLimits
	l.read = time.Minute
	return l
}

// served fails if the writer or well-behaved clients are held up. On a busy machine the short
// limits may end such a client's request, too. It then asks again.
func served(t *testing.T, path string, s *boltstore.Claimed) {
	t.Helper()
	if err := s.Upstream.WriteFacts(func(f *listing.Facts) { f.Server.Address = "https://a" }); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := dial(t, path)
	_, err := c.Status(ctx)
	for err != nil && ctx.Err() == nil {
		_, err = c.Status(ctx)
	}
	if err != nil {
		t.Errorf("no one else is served: %v", err)
	}
}

// ended waits until the server has hung up.
func ended(t *testing.T, c net.Conn) {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the server did not hang up")
	}
}

// TestCutAnswer: a copy that ends early is an error, not a shorter copy.
func TestCutAnswer(t *testing.T) {
	path := testPath(t)
	db, _ := world(t, path, 2000, 2000)
	s := start(t, db, defaultLimits)
	n := 0
	err := dial(t, path).Snapshot(t.Context(), calls(func() {
		if n++; n == 1 {
			closeServer(t, s)
		}
	}))
	if err == nil || !strings.Contains(err.Error(), "from the owner of") {
		t.Error(err)
	}
}
