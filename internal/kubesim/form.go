package kubesim

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Reform serves another content of obj under the version that it has, as new
// defaults or another conversion of a custom resource do, or another release of
// the server. The OpenAPI document of its group version has another hash then.
// Watches are not told.
func (s *Server) Reform(obj Object) error {
	t, err := s.tableOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := t.key(obj.GetNamespace(), obj.GetName())
	old := t.current(key)
	if old == nil {
		return fmt.Errorf("kubesim: %s is not there", key)
	}
	m, err := t.kind.metadata(old)
	if err != nil {
		return err
	}
	obj.SetUID(m.UID)
	obj.SetCreationTimestamp(m.CreationTimestamp)
	setDefaults(obj)
	obj.SetResourceVersion(strconv.FormatUint(old.rv, 10))
	v, err := t.kind.encode(obj, old.rv)
	if err != nil {
		return err
	}
	e := t.entries[key]
	e.versions[len(e.versions)-1] = v
	if s.forms == nil {
		s.forms = map[schema.GroupVersion]int{}
	}
	s.forms[t.GroupVersion()]++
	return nil
}

// serveSchema tells the hash of a group version's OpenAPI document, under another
// one. The document itself is not served.
func (s *Server) serveSchema(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/openapi/v3/")
	gv, err := schema.ParseGroupVersion(strings.TrimPrefix(strings.TrimPrefix(path, "apis/"), "api/"))
	if err != nil || !s.servesGroupVersion(gv) || r.URL.Query().Get("hash") == "" {
		http.NotFound(w, r)
		return
	}
	s.mu.Lock()
	hash := fmt.Sprintf("%0128X", s.forms[gv])
	s.mu.Unlock()
	w.Header().Set("Content-Type", mediaJSON)
	w.Header().Set("ETag", strconv.Quote(hash))
	w.Header().Set("Location", r.URL.Path+"?hash="+hash)
	w.Header().Set("Content-Length", "0")
	w.WriteHeader(http.StatusMovedPermanently)
}

// HideForm takes back what Reform has changed of hashes: nothing tells of the
// other contents.
func (s *Server) HideForm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forms = nil
}
