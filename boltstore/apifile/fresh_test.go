package apifile

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestFresh: a read without a version waits until the server has confirmed the state, so
// it shows all earlier writes. If the server cannot be asked, a warning says so, at once.
// Other reads do not wait.
func TestFresh(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	db := filetest.Open(t, boltstore.Options{})
	const path = "/api/v1/namespaces/a/configmaps"
	newOne := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "new"}}
	}
	unfed := filetest.Open(t, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, unfed, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10",
		configMap("a", "x", 1))
	if a := expect(t, New(unfed, Options{Fresh: time.Minute}), path, 200,
		"a/x"); !strings.Contains(a.header.Get("Warning"), "no informer of this process") {
		t.Errorf("nobody keeps it: %v", a.header)
	}

	mirror(t, sim, db)
	h := New(db, Options{Fresh: time.Minute})
	if err := sim.Create(newOne()); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{path: "a/new", path + "/new": ""} {
		if a := expect(t, h, path, 200, want); a.header.Get("Warning") != "" {
			t.Errorf("%s: %v", path, a.header)
		}
	}
	if err := sim.Delete(newOne()); err != nil {
		t.Fatal(err)
	}
	expect(t, h, path, 200, "")
	expect(t, h, path+"/new", 404, "not found")
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	sim.DropConnections()
	h = New(db, Options{Fresh: time.Second})
	eventually(t, "the link is down", func() bool {
		return strings.Contains(ask(t, h, http.MethodGet, path).header.Get("Warning"),
			"the server cannot be asked: offline")
	})
	for _, query := range []string{"?resourceVersion=0", "?resourceVersionMatch=NotOlderThan&resourceVersion=1"} {
		if a := expect(t, h, path+query, 200, ""); a.header.Get("Warning") != "" {
			t.Errorf("%s: %v", query, a.header)
		}
	}
	if a := expect(t, New(db, Options{}), path, 200, ""); a.header.Get("Warning") != "" {
		t.Errorf("not asked to be fresh: %v", a.header)
	}
}

// ahead is the real clock, later by some time.
type ahead struct {
	clock.RealClock
	by atomic.Int64
}

func (a *ahead) Now() time.Time                  { return a.RealClock.Now().Add(time.Duration(a.by.Load())) }
func (a *ahead) Since(t time.Time) time.Duration { return a.Now().Sub(t) }

// TestFreshAge: after the server has confirmed the state, each answer is young, although the
// file notes that later.
func TestFreshAge(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	c := &ahead{}
	db := filetest.Open(t, boltstore.Options{Clock: c})
	mirror(t, sim, db)
	c.by.Store(int64(time.Hour))
	const path = "/api/v1/configmaps"
	a := expect(t, New(db, Options{Clock: c}), path, 200, "")
	if age, err := strconv.Atoi(a.header.Get("Age")); err != nil || age < 3600 || age > 3660 {
		t.Errorf("not confirmed since: %v", a.header)
	}
	a = expect(t, New(db, Options{Clock: c, Fresh: time.Minute}), path, 200, "")
	if age, err := strconv.Atoi(a.header.Get("Age")); err != nil || age > 60 || a.header.Get("Warning") != "" {
		t.Errorf("%v", a.header)
	}
	confirmed, err := time.Parse(time.RFC3339, a.header.Get(HeaderConfirmed))
	if err != nil || c.Since(confirmed) > time.Minute {
		t.Errorf("%v", a.header)
	}
	young := func(what string, h http.Handler, path string) {
		t.Helper()
		a := expect(t, h, path, 200, "")
		if age, err := strconv.Atoi(a.header.Get("Age")); err != nil || age > 60 ||
			strings.Contains(a.header.Get("Warning"), " 60m") {
			t.Errorf("%s: %v", what, a.header)
		}
	}
	young("not asked to be fresh", New(db, Options{Clock: c}), path)
	young("with a version", New(db, Options{Clock: c, Fresh: time.Minute}), path+"?resourceVersion=0")
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	sim.DropConnections()
	young("the link is down", New(db, Options{Clock: c, Fresh: time.Second}), path)
	if states, err := db.States(); err != nil || states[0].ConfirmedAge == nil ||
		*states[0].ConfirmedAge > time.Minute {
		t.Errorf("%+v %v", states, err)
	}
}

// mirrored is a server, and a file that an informer keeps up to date.
func mirrored(t *testing.T) (*kubesim.Server, *boltstore.DB) {
	t.Helper()
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	db := filetest.Open(t, boltstore.Options{})
	mirror(t, sim, db)
	return sim, db
}

// TestFreshWatch: a watch in place of a list without a version, with which informers
// begin, shows all earlier writes, as from a server. A plain watch waits for nothing.
func TestFreshWatch(t *testing.T) {
	sim, db := mirrored(t)
	h := New(db, Options{Fresh: time.Minute})
	const path = "/api/v1/configmaps?watch=1&timeoutSeconds=1"
	for i := range 3 {
		name := fmt.Sprintf("new-%d", i)
		if err := sim.Create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		w := &seen{httptest.NewRecorder(), "BOOKMARK", cancel} // then the client leaves
		func() {
			defer func() { _ = recover() }() // as a server does, since the client leaves
			h.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet,
				path+"&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan", nil))
		}()
		if a := w.Body.String(); !strings.Contains(a, `"name":"`+name+`"`) {
			t.Errorf("%s is missing: %s", name, a)
		}
	}
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	sim.DropConnections()
	if a := ask(t, New(db, Options{Fresh: time.Minute}), http.MethodGet, path); a.header.Get("Warning") != "" {
		t.Errorf("%v", a.header)
	}
}

// seen is a client that does something when it sees a text in an answer.
type seen struct {
	*httptest.ResponseRecorder
	text string
	do   func()
}

// Write implements io.Writer.
func (w *seen) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte(w.text)) {
		defer w.do()
	}
	return w.ResponseRecorder.Write(b)
}

// TestFreshAtACut: a read that waits for the server is answered as soon as the server turns
// out to be out of reach. That is when the link is cut, whoever reads first.
func TestFreshAtACut(t *testing.T) {
	sim, db := mirrored(t)
	h := New(db, Options{Fresh: 20 * time.Second})
	const path = "/api/v1/namespaces/a/configmaps"
	if a := expect(t, h, path, 200, ""); a.header.Get("Warning") != "" {
		t.Errorf("%v", a.header)
	}
	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	sim.DropConnections()
	// The client is not told which request failed, nor where it went.
	if a := expect(t, h, path, 200, ""); !strings.HasSuffix(a.header.Get("Warning"),
		`the server cannot be asked: offline"`) {
		t.Errorf("%v", a.header)
	}
}

// TestFreshOfARefusedType: if the server refuses the type, as one whose definition is gone, the
// answer says that, and not that there is no link.
func TestFreshOfARefusedType(t *testing.T) {
	sim, db := mirrored(t)
	h := New(db, Options{Fresh: 20 * time.Second})
	gone := kubesim.Answer(apierrors.NewNotFound(corev1.Resource("configmaps"), ""))
	sim.FailNext(func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/configmaps") }, 1<<30, gone)
	sim.DropConnections()
	if a := expect(t, h, "/api/v1/namespaces/a/configmaps", 200, ""); !strings.HasSuffix(a.header.Get("Warning"),
		`the server refuses these objects: denied"`) {
		t.Errorf("%v", a.header)
	}
}
