package serve

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/listing"
)

// TestClusterLater: after an outage of the link, the file's server is asked again: it may
// be another cluster's by then.
func TestClusterLater(t *testing.T) {
	c := newCluster(t)
	c.becomes("one")
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Clusters: is("one")})})
	write := func(code int) {
		t.Helper()
		if a := send(t, s.socket, "POST", local+maps, nil); a.code != code {
			t.Errorf("%d %s", a.code, a.body)
		}
	}
	write(200)
	for _, uid := range []string{"two", "one", "two", "one"} {
		c.setDown(true)
		write(503)
		c.becomes(uid)
		c.setDown(false)
		write(map[string]int{"one": 200, "two": 503}[uid])
	}
}

// TestConnectionMadeAnew: an idle connection ends, and then another cluster's server is
// at the address. Not even the first request reaches it, whoever sends it, and however.
func TestConnectionMadeAnew(t *testing.T) {
	ours := newAuthority(t)
	owner := httptest.NewServer(http.NotFoundHandler())
	defer owner.Close()
	knows := func(ctx context.Context) []string { // as asked through the file's owner
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, owner.URL, nil)
		if err != nil {
			return nil
		}
		resp, err := owner.Client().Do(req)
		if err != nil {
			return nil
		}
		_ = resp.Body.Close() // it says nothing
		return []string{"one"}
	}
	for name, http2 := range map[string]bool{"HTTP/2": true, "HTTP/1.1": false} {
		for _, who := range []string{"this user", "a certificate", "a token", "a stream"} {
			t.Run(name+", "+who, func(t *testing.T) {
				c := newClusterOf(t, http2)
				c.becomes("one")
				clock := fakeClock()
				s := start(t, Options{File: fileOf(t, apifile.Options{}),
					Link: c.link(t, LinkOptions{Clusters: knows, Clock: clock})})
				r := s.remote(ours)
				write := func() said {
					switch who {
					case "a certificate":
						return send(t, r.client(ours, pkix.Name{CommonName: "bob"}), "POST", r.addr+maps, nil)
					case "a token":
						return send(t, r.client(nil, pkix.Name{}), "POST", r.addr+maps, nil, "Authorization",
							"Bearer token-of-ann")
					case "a stream":
						conn, err := net.Dial("unix", filepath.Join(s.dir, "s"))
						if err != nil {
							t.Fatal(err)
						}
						defer conn.Close()
						return said{body: upgrade(t, conn, "/api/v1/namespaces/a/pods/p/exec", "SPDY/3.1", "")}
					}
					return send(t, s.socket, "POST", local+maps, nil)
				}
				if a := write(); a.code != 200 && a.body != "hello\n" {
					t.Fatalf("%d %s", a.code, a.body)
				}
				for range 3 {
					before, _ := c.counts()
					c.becomes("two")
					c.CloseClientConnections()
					for range 3 {
						if a := write(); a.code != 503 && !strings.HasPrefix(a.body, "503") &&
							!(who == "a token" && a.code == 401) {
							t.Errorf("%d %s", a.code, a.body)
						}
					}
					if after, _ := c.counts(); after != before {
						t.Errorf("%d requests reached the other cluster: %+v", after-before, c.last())
					}
					c.becomes("one")
					clock.Step(pause)
					if a := write(); a.code != 200 && a.body != "hello\n" {
						t.Errorf("the file's cluster again: %d %s", a.code, a.body)
					}
				}
			})
		}
	}
}

// TestClusterKnownLater: a server is asked which cluster it is as soon as the file knows its
// own.
func TestClusterKnownLater(t *testing.T) {
	c := newCluster(t)
	c.becomes("two")
	var known atomic.Value
	known.Store("")
	link := c.link(t, LinkOptions{Clusters: func(ctx context.Context) []string {
		return is(known.Load().(string))(ctx)
	}})
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: link})
	write := func(when string, code int) {
		t.Helper()
		if a := send(t, s.socket, "POST", local+maps, nil); a.code != code {
			t.Errorf("%s: %d %s", when, a.code, a.body)
		}
	}
	write("not known", 200)
	known.Store("one")
	write("known", 503)
	known.Store("two") // the file's contents were set aside
	write("another one known", 200)
}

// TestAskerLeaves: if the first client that asks for the cluster's identity leaves, the
// others that wait for the answer do not fail.
func TestAskerLeaves(t *testing.T) {
	c := newCluster(t)
	c.becomes("one")
	asked, answer := make(chan struct{}), make(chan struct{})
	slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
			<-answer
		case <-answer:
		}
		c.ServeHTTP(w, r)
	}))
	defer slow.Close()
	l := linkTo(t, slow, LinkOptions{Clusters: is("one")})
	ctx, leave := context.WithCancel(t.Context())
	first := make(chan error, 1)
	go func() { first <- l.sameCluster(ctx) }()
	<-asked
	leave()
	close(answer)
	if err := <-first; err != nil { // the others get the same
		t.Error(err)
	}
}

// TestClusterOfShared: the file's cluster is read from its owner, or from the file.
func TestClusterOfShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	file := NewShared(path, func() (*boltstore.DB, error) {
		return boltstore.Open(path, boltstore.Options{ReadOnly: true, GiveWay: true})
	}, apifile.Options{})
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	expect := func(when string, uids ...string) {
		t.Helper()
		if got := file.Clusters(t.Context()); !slices.Equal(got, uids) {
			t.Errorf("%s: %q", when, got)
		}
	}
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	sock, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := db.Claim(boltstore.Claim{Source: filetest.Source("configmaps"), Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	filetest.Relist(t, store, "10")
	expect("its owner does not know")
	store.Upstream.NoteFacts(func(f *listing.Facts) { f.Server.ClusterUID = "one" })
	relist, err := store.Upstream.BeginRelist(boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := relist.Commit("20", time.Now()); err != nil {
		t.Fatal(err)
	}
	expect("its owner knows", "one")
	store.Release()
	if err := errors.Join(sock.Close(), db.Close()); err != nil {
		t.Fatal(err)
	}
	expect("nobody has it open", "one")
	if db, err = boltstore.Open(path, boltstore.Options{}); err != nil { // the view gives way
		t.Fatal(err)
	}
	other := filetest.Claim(t, db, filetest.Source("secrets"), &corev1.Secret{})
	other.Upstream.NoteFacts(func(f *listing.Facts) { f.Server.ClusterUID = "two" })
	if relist, err = other.Upstream.BeginRelist(boltstore.RelistOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := relist.Commit("30", time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := file.Ready(); err == nil {
		t.Error("it can be read")
	}
	expect("somebody has it open, and does not answer", "one")
	if got := ClustersOf(db, ""); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("its sources are of two clusters: %q", got)
	}
	other.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClusterOfDamaged: a file that is damaged while it is read answers no more. Its
// cluster stays known.
func TestClusterOfDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := db.Claim(boltstore.Claim{Source: filetest.Source("configmaps"), Example: &corev1.ConfigMap{}})
	if err != nil {
		t.Fatal(err)
	}
	store.Upstream.NoteFacts(func(f *listing.Facts) { f.Server.ClusterUID = "one" })
	relist, err := store.Upstream.BeginRelist(boltstore.RelistOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := relist.Commit("20", time.Now()); err != nil {
		t.Fatal(err)
	}
	store.Release()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	file := NewShared(path, func() (*boltstore.DB, error) {
		return boltstore.Open(path, boltstore.Options{ReadOnly: true, GiveWay: true})
	}, apifile.Options{})
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	if got := file.Clusters(t.Context()); !slices.Equal(got, []string{"one"}) {
		t.Fatal(got)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	st, err := f.Stat()
	if err == nil {
		meta := int64(2 * os.Getpagesize()) // what follows the meta pages is lost
		_, err = f.WriteAt(make([]byte, st.Size()-meta), meta)
	}
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if got := file.Clusters(t.Context()); !slices.Equal(got, []string{"one"}) {
			t.Error(got)
		}
	}
}
