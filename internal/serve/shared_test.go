package serve

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestShared: the file is served before another program opens it, while its owner keeps
// it up to date, and after that. A watch of one ends when another begins, and goes on
// from there.
func TestShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	source := boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped}
	life := func(version string, objs ...runtime.Object) (end func()) {
		db, err := boltstore.Open(path, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		sock, err := live.Serve(db, live.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := db.Claim(boltstore.Claim{Source: source, Example: &corev1.ConfigMap{}})
		if err != nil {
			t.Fatal(err)
		}
		filetest.Relist(t, s, version, objs...)
		return func() {
			s.Release()
			if err := sock.Close(); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	life("10", &corev1.ConfigMap{ObjectMeta: object("a", "x", 1)})()

	opened := 0
	file := NewShared(path, func() (*boltstore.DB, error) {
		opened++
		return boltstore.Open(path, boltstore.Options{ReadOnly: true, GiveWay: true})
	}, apifile.Options{})
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	c := newCluster(t)
	s := start(t, Options{File: file, Link: c.link(t, LinkOptions{})})
	has := func(when, name string) {
		t.Helper()
		for _, base := range []string{maps, "/api/v1/configmaps"} {
			if a := s.get(base); !a.has(200, name) || a.header.Get(apifile.HeaderAge) == "" {
				t.Errorf("%s: %d %s", when, a.code, a.body)
			}
		}
		if a := s.get("/api/v1/pods"); !a.has(200, `"kind":"Answer"`) {
			t.Errorf("%s: what the file lacks: %d %s", when, a.code, a.body)
		}
		if a := s.get("/api/v1"); !a.has(200, `"configmaps"`) || !strings.Contains(a.body, `"pods"`) {
			t.Errorf("%s: discovery: %d %s", when, a.code, a.body)
		}
	}
	has("nobody has it", `"uid":"ax"`)
	first := watch(t, s)

	end := life("20", &corev1.ConfigMap{ObjectMeta: object("a", "x", 1)},
		&corev1.ConfigMap{ObjectMeta: object("a", "y", 11)})
	if line, err := first.ReadString('\n'); err == nil {
		t.Errorf("the watch of an earlier state brings %s", line)
	}
	has("its owner has it", `"uid":"ay"`)
	if opened != 1 {
		t.Errorf("it was opened %d times", opened)
	}
	second := watch(t, s)
	if line, err := second.ReadString('\n'); err != nil || !strings.Contains(line, `"uid":"ay"`) {
		t.Errorf("%q %v", line, err)
	}
	end()
	if line, err := second.ReadString('\n'); err == nil {
		t.Errorf("the watch at the owner brings %s", line)
	}
	has("its owner has ended", `"uid":"ay"`)

	end = life("30", &corev1.ConfigMap{ObjectMeta: object("a", "z", 21)})
	has("another owner has it", `"uid":"az"`)
	end()
}

// TestOwnerBreaksOff: a watch ends in order when its owner is killed. client-go takes a
// stream that breaks off in HTTP/2 for an event with an error, which kubectl prints.
func TestOwnerBreaksOff(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{}), "10",
		&corev1.ConfigMap{ObjectMeta: object("a", "x", 1)})
	sock, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := NewShared(db.Path(), nil, apifile.Options{})
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	events := watch(t, start(t, Options{File: file}))
	if err := sock.Close(); err != nil { // its requests break off, since their source goes on
		t.Error(err)
	}
	if rest, err := io.ReadAll(events); err != nil {
		t.Errorf("the watch breaks off after %q: %v", rest, err)
	}
}

// TestSharedWithoutSocket: an owner that serves no socket is named.
func TestSharedWithoutSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	file := NewShared(path, func() (*boltstore.DB, error) {
		return boltstore.Open(path, boltstore.Options{ReadOnly: true, GiveWay: true, LockTimeout: -1})
	}, apifile.Options{})
	s := start(t, Options{File: file})
	if a := s.get(maps); !a.has(503, "has the file open already") || !strings.Contains(a.body, `"message":"open `) ||
		a.header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.code, a.body)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if a := s.get(maps); a.code != 503 {
		t.Errorf("closed: %d %s", a.code, a.body)
	}
}

// TestLargeHeaderToOwner: an accepted header reaches the owner. Watches there go on.
func TestLargeHeaderToOwner(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	store := filetest.Claim(t, db, filetest.Source("configmaps"), &corev1.ConfigMap{})
	filetest.Relist(t, store, "10")
	file := sharedOf(t, db)
	s := start(t, Options{File: file})
	events := watch(t, s)
	if a := s.get(maps, "X-Large", strings.Repeat("x", DefaultLimits.Header-500)); a.code != 200 {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := s.get(maps + "?labelSelector=" + strings.Repeat("a%2C", DefaultLimits.Header/5) + "a"); a.code != 200 {
		t.Errorf("a selector: %d %s", a.code, a.body)
	}
	for _, protocol := range []string{"websocket", "x"} {
		if a := s.get(maps, "Connection", "Upgrade", "Upgrade", protocol); a.code != 200 {
			t.Errorf("an upgrade to %s: %d %s", protocol, a.code, a.body)
		}
	}
	q := feed(t, store)
	if err := q.Update(&corev1.ConfigMap{ObjectMeta: object("a", "x", 11)}); err != nil {
		t.Fatal(err)
	}
	if line, err := events.ReadString('\n'); err != nil || !strings.Contains(line, `"uid":"ax"`) {
		t.Errorf("%q %v", line, err)
	}
}
