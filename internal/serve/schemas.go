package serve

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

const (
	schemasPath = "/openapi/v3"
	// olderPath has all in one document, which is not kept. kubectl asks for it if it gets no
	// list of the others, and shows the answer to this request.
	olderPath = "/openapi/v2"
	// largestSchema bounds a document that is kept.
	largestSchema = 32 << 20
)

// Schemas are the OpenAPI documents of a server, one for each group version. They are
// kept in a folder beside the file once a client has asked for them over the link. They
// are larger than all that many mirrors read, so they are fetched only when a client
// wants them.
type Schemas struct {
	// Failed is called for each document that cannot be kept. nil calls nothing.
	Failed func(error)

	dir string
}

// SchemasOf returns the schemas beside a file, for the cluster of that name, which is mostly
// empty. Each named cluster has its own folder, since clusters have different types.
func SchemasOf(file, cluster string) *Schemas {
	dir := file + ".openapi"
	if cluster != "" {
		sum := sha256.Sum256([]byte(cluster)) // a name may have any characters
		dir = filepath.Join(dir, hex.EncodeToString(sum[:8]))
	}
	return &Schemas{dir: dir}
}

// isSchema says whether a path is that of a document, or of their list.
func isSchema(path string) bool { return path == olderPath || isKept(path) }

func isKept(path string) bool {
	return path == schemasPath || strings.HasPrefix(path, schemasPath+"/")
}

// ServeHTTP answers with a document, or with the list of documents. If a document is kept
// under the hash that the client asks for, it is the server's. Anything else comes from
// the server, or from the kept documents if the server cannot be asked. server is nil if
// there is none.
func (s *Schemas) ServeHTTP(w http.ResponseWriter, r *http.Request, server http.Handler) {
	form := formOf(r.Header.Get("Accept"))
	kept := s.read(r.URL.Path, form)
	hash := r.URL.Query().Get("hash")
	if kept != nil && hash != "" && hash == kept.hash {
		kept.send(w)
		return
	}
	missing := noSchemaError{r.URL.Path}.Error()
	if server != nil && isSchema(r.URL.Path) {
		r = r.Clone(r.Context())
		for _, name := range []string{"If-None-Match", "If-Modified-Since", "Range", "Accept-Encoding"} {
			r.Header.Del(name) // the whole document must be kept
		}
		t := &tee{ResponseWriter: w, header: http.Header{}, keep: isKept(r.URL.Path), spare: kept != nil}
		server.ServeHTTP(t, r)
		if t.keep && r.Method == http.MethodGet && t.code == http.StatusOK {
			if err := s.keep(r.URL.Path, t); err != nil && s.Failed != nil {
				s.Failed(fmt.Errorf("the schema could not be kept beside the file: %w", err))
			}
		}
		if !t.failed {
			return
		}
		missing += ": " + strings.TrimSpace(statusText(t.body.Bytes()))
	}
	if kept == nil {
		http.Error(w, missing, http.StatusNotImplemented) // kubectl shows the text of no other code and form
		return
	}
	kept.send(w)
}

// keep writes what t has passed on.
func (s *Schemas) keep(path string, t *tee) error {
	if t.large {
		return fmt.Errorf("it has more than %d MiB", largestSchema>>20)
	}
	return s.write(&schemaDoc{path, formOf(t.header.Get("Content-Type")), strings.Trim(t.header.Get("Etag"), `"`),
		t.body.Bytes()})
}

// statusText is the message of a status, or the text itself.
func statusText(body []byte) string {
	var st metav1.Status
	if err := json.Unmarshal(body, &st); err != nil || st.Message == "" {
		return string(body)
	}
	return st.Message
}

// ForThisUser passes requests on with this process's credentials.
func (l *Link) ForThisUser() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		l.ServeHTTP(w, withCaller(r, &caller{same: true}))
	})
}

// noSchemaError says how to get a document.
type noSchemaError struct{ path string }

func (e noSchemaError) Error() string {
	what := strings.Trim(strings.TrimPrefix(e.path, schemasPath), "/")
	if what == "" || e.path == olderPath {
		what = "any type"
	}
	return fmt.Sprintf("the schema of %s is not kept beside the file; on a link, once: kubewake explain TYPE "+
		"--fetch, or kubectl explain TYPE through kubewake serve --pass-through", what)
}

// Ready returns an error if no document is kept.
func (s *Schemas) Ready() error {
	if s.read(schemasPath, formJSON) == nil {
		return noSchemaError{}
	}
	return nil
}

const (
	formJSON  = "json"
	formProto = "pb"
)

// formOf is the form of a document that an Accept or Content-Type names.
func formOf(media string) string {
	if strings.Contains(media, "protobuf") {
		return formProto
	}
	return formJSON
}

// schemaDoc is a document, or their list.
type schemaDoc struct {
	path, form, hash string
	body             []byte
}

func (d *schemaDoc) send(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", map[string]string{formJSON: kubeapi.MediaJSON,
		formProto: "application/com.github.proto-openapi.spec.v3.v1.0+protobuf"}[d.form])
	h.Set("Etag", fmt.Sprintf("%q", d.hash))
	h.Set("Vary", "Accept")
	_, _ = w.Write(d.body) // the client left
}

// file is the path of a document. Its name has no separators.
func (s *Schemas) file(path, form string) string {
	return filepath.Join(s.dir, strings.ReplaceAll(strings.Trim(path, "/"), "/", "_")+"."+form+".gz")
}

// read returns the kept document, nil if there is none or it cannot be read.
func (s *Schemas) read(path, form string) *schemaDoc {
	f, err := os.Open(s.file(path, form))
	if err != nil {
		return nil
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil || z.Name != path {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(z, largestSchema+1))
	if err != nil || len(body) > largestSchema {
		return nil
	}
	return &schemaDoc{path, form, z.Comment, body}
}

// write keeps a document. If it cannot, the next client gets it from the server.
func (s *Schemas) write(d *schemaDoc) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	z.Name, z.Comment = d.path, d.hash
	_, err := z.Write(d.body)
	if err = errors.Join(err, z.Close()); err != nil {
		return err // a header that is no text
	}
	tmp, err := os.CreateTemp(s.dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(out.Bytes())
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), s.file(d.path, d.form))
	}
	if err != nil {
		_ = os.Remove(tmp.Name()) // temporary files are never read
	}
	return err
}

// tee passes an answer on and keeps its body. If the answer says that the server failed,
// tee passes nothing on.
type tee struct {
	http.ResponseWriter
	header http.Header // until the code is known
	code   int
	keep   bool
	spare  bool // there is a kept document if the server has too many requests
	failed bool
	large  bool
	body   bytes.Buffer // if it is to be kept, or failed
}

// Header implements http.ResponseWriter.
func (t *tee) Header() http.Header { return t.header }

// WriteHeader implements http.ResponseWriter. As in an answer, interim ones are left out.
func (t *tee) WriteHeader(code int) {
	if t.code != 0 || code < http.StatusOK {
		return
	}
	t.code = code
	if t.failed = code >= http.StatusInternalServerError || t.spare && code == http.StatusTooManyRequests; t.failed {
		return
	}
	for name, values := range t.header {
		t.ResponseWriter.Header()[name] = values
	}
	t.ResponseWriter.WriteHeader(code)
}

// Write implements io.Writer.
func (t *tee) Write(b []byte) (int, error) {
	t.WriteHeader(http.StatusOK)
	if t.large = t.large || t.body.Len()+len(b) > largestSchema; !t.large && (t.keep || t.failed) {
		t.body.Write(b)
	}
	if t.failed {
		return len(b), nil
	}
	return t.ResponseWriter.Write(b)
}

// FlushError is for http.ResponseController.
func (t *tee) FlushError() error {
	if t.WriteHeader(http.StatusOK); t.failed {
		return nil
	}
	return http.NewResponseController(t.ResponseWriter).Flush()
}
