package serve

import (
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/internal/waittest"
)

// TestSchemas: a document that a client has asked for is kept, and is used while the
// server cannot answer. The same document is not fetched twice.
func TestSchemas(t *testing.T) {
	c := newCluster(t)
	ours := newAuthority(t)
	path := filepath.Join(t.TempDir(), "f.db")
	of := func() *served {
		return start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour}),
			Schemas: SchemasOf(path, "")})
	}
	s := of()
	const doc = "/openapi/v3/api/v1"
	requests := func(n int, what string, header ...string) said {
		t.Helper()
		before, _ := c.counts()
		a := s.get(what, header...)
		if after, _ := c.counts(); after-before != n {
			t.Errorf("%s: %d requests of the server", what, after-before)
		}
		return a
	}
	c.setDown(true)
	if a := s.get(doc); !a.has(501, "the schema of api/v1 is not kept beside the file") ||
		!strings.Contains(a.body, "explain TYPE --fetch") {
		t.Errorf("nothing is kept: %d %s", a.code, a.body)
	}
	if a := s.get("/openapi/v2"); !a.has(501, "the schema of any type is not kept beside the file") ||
		!strings.Contains(a.body, "the server cannot be reached") {
		t.Errorf("what kubectl asks for then: %d %s", a.code, a.body)
	}
	c.setDown(false)
	if a := requests(1, "/openapi/v2"); !a.has(200, "/openapi/v2") {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := requests(1, "/openapi/v3"); !a.has(200, "hash=one") {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := requests(1, doc+"?hash=one"); !a.has(200, `"openapi":"one"`) {
		t.Errorf("%d %s", a.code, a.body)
	}
	if a := requests(0, doc+"?hash=one"); !a.has(200, `"openapi":"one"`) || a.header.Get("Etag") != `"one"` {
		t.Errorf("once more: %d %s", a.code, a.body)
	}
	if a := requests(1, doc+"?hash=one", "Accept",
		"application/com.github.proto-openapi.spec.v3.v1.0+protobuf"); a.code != 200 ||
		!strings.Contains(a.header.Get("Content-Type"), "protobuf") {
		t.Errorf("another form: %d %s", a.code, a.body)
	}
	if a := requests(1, "/openapi/v3/apis/none/v1"); a.code != 404 {
		t.Errorf("what the server lacks: %d %s", a.code, a.body)
	}
	c.setDown(true)
	s = of() // another life
	for _, what := range []string{"/openapi/v3", doc, doc + "?hash=one", doc + "?hash=older"} {
		if a := requests(0, what); a.code != 200 || !strings.Contains(a.header.Get("Content-Type"), "json") {
			t.Errorf("offline, %s: %d %s", what, a.code, a.body)
		}
	}
	r := s.remote(ours)
	bob := r.client(ours, pkix.Name{CommonName: "bob"})
	if a := get(t, bob, r.addr+doc); a.code == 200 {
		t.Errorf("somebody else, whom the server has not allowed it: %d %s", a.code, a.body)
	}
	c.setDown(false)
	c.may = func(s authorizationv1.SubjectAccessReviewSpec) bool { return s.NonResourceAttributes != nil }
	s = of()
	r = s.remote(ours)
	bob = r.client(ours, pkix.Name{CommonName: "bob"})
	if a := get(t, bob, r.addr+doc); a.code != 200 {
		t.Errorf("whom it has: %d %s", a.code, a.body)
	}

	dir := path + ".openapi"
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", info, err)
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Errorf("%v %v", files, err)
	}
	for _, f := range files {
		write(t, filepath.Join(dir, f.Name()), []byte("damaged"))
	}
	if a := requests(1, doc+"?hash=one"); !a.has(200, `"openapi":"one"`) {
		t.Errorf("damaged: %d %s", a.code, a.body)
	}
	c.setDown(true)
	// The answer ends before its document is kept.
	waittest.Eventually(t, "what replaced the damaged document is kept", func() bool { return s.get(doc).code == 200 })
}

// TestSchemasOfClusters: a document of one cluster is not used for another, whatever the
// clusters' names.
func TestSchemasOfClusters(t *testing.T) {
	dir := t.TempDir()
	const path = "/openapi/v3"
	all := map[string]*Schemas{}
	for _, cluster := range []string{"", "k8s/clusters/one", "..", "apis", strings.Repeat("long", 100)} {
		s := SchemasOf(filepath.Join(dir, "f.db"), cluster)
		if s.read(path, formJSON) != nil {
			t.Errorf("%q has the document of another cluster", cluster)
		}
		if err := s.write(&schemaDoc{path, formJSON, "hash", []byte(cluster)}); err != nil {
			t.Fatal(err)
		}
		all[cluster] = s
	}
	for cluster, s := range all {
		if d := s.read(path, formJSON); d == nil || string(d.body) != cluster {
			t.Errorf("%q: %v", cluster, d)
		}
	}
	if names, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(names) != 1 {
		t.Errorf("beside the file: %v %v", names, err)
	}
}

// TestSchemaWithoutBody: the answer to HEAD has no document, so it is not kept as one.
func TestSchemaWithoutBody(t *testing.T) {
	c := newCluster(t)
	s := start(t, Options{File: fileOf(t, apifile.Options{}), Link: c.link(t, LinkOptions{Offline: time.Hour}),
		Schemas: SchemasOf(filepath.Join(t.TempDir(), "f.db"), "")})
	const doc = "/openapi/v3/api/v1"
	if a := send(t, s.socket, "HEAD", local+doc, nil); a.code != 200 || a.body != "" {
		t.Errorf("%d %q", a.code, a.body)
	}
	if a := s.get(doc + "?hash=one"); !a.has(200, `"openapi":"one"`) {
		t.Errorf("after HEAD: %d %q", a.code, a.body)
	}
	c.setDown(true)
	if a := s.get(doc); !a.has(200, `"openapi":"one"`) {
		t.Errorf("after GET, offline: %d %q", a.code, a.body)
	}
}

// TestSchemaBrokenOff: half of a document is not kept, even if no http.Server serves it,
// as in kubewake explain --fetch. The client sees that it broke off.
func TestSchemaBrokenOff(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Etag", `"one"`)
		_, _ = fmt.Fprint(w, `{"openapi":`)       // the test sees it missing
		_ = http.NewResponseController(w).Flush() // likewise
		panic(http.ErrAbortHandler)
	}))
	defer server.Close()
	s := SchemasOf(filepath.Join(t.TempDir(), "f.db"), "")
	w := httptest.NewRecorder()
	func() {
		defer func() {
			if p := recover(); p != http.ErrAbortHandler { //nolint:errorlint // a panic's value
				t.Errorf("it ended as if it were whole: %v", p)
			}
		}()
		s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3/api/v1?hash=one", nil),
			linkTo(t, server, LinkOptions{}).ForThisUser())
	}()
	if w.Body.String() != `{"openapi":` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if doc := s.read("/openapi/v3/api/v1", formJSON); doc != nil {
		t.Errorf("kept: %q", doc.body)
	}
}

// TestSchemaTooLarge: a document that is too large to be kept is passed on, and Failed says so.
func TestSchemaTooLarge(t *testing.T) {
	s := SchemasOf(filepath.Join(t.TempDir(), "f.db"), "")
	var said error
	s.Failed = func(err error) { said = err }
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/openapi/v3/api/v1?hash=one", nil),
		http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, largestSchema)) // the recorder takes all
			_, _ = w.Write([]byte("x"))                 // likewise
		}))
	if w.Body.Len() != largestSchema+1 || said == nil || !strings.Contains(said.Error(), "32 MiB") {
		t.Errorf("%d bytes, %v", w.Body.Len(), said)
	}
}

// schemas are the documents of a cluster.
func schemas(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/openapi/v3":
		w.Header().Set("Content-Type", "application/json")
		// the client left
		_, _ = fmt.Fprint(w, `{"paths":{"api/v1":{"serverRelativeURL":"/openapi/v3/api/v1?hash=one"}}}`)
	case "/openapi/v3/api/v1":
		w.Header().Set("Etag", `"one"`)
		media := "application/json"
		if strings.Contains(r.Header.Get("Accept"), "protobuf") {
			media = "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"
		}
		w.Header().Set("Content-Type", media)
		_, _ = fmt.Fprint(w, `{"openapi":"one"}`) // the client left
	default:
		http.NotFound(w, r)
	}
}
