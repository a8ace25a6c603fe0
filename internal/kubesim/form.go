package kubesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/kubewake/kubewake/internal/kubeapi"
)

var serverVersion = apiversion.Info{
	Major:      "1",
	Minor:      "36",
	GitVersion: "v1.36.3",
	GoVersion:  runtime.Version(),
	Compiler:   runtime.Compiler,
	Platform:   runtime.GOOS + "/" + runtime.GOARCH,
}

func (s *Server) version() apiversion.Info {
	v := serverVersion
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.release != "" {
		v.GitVersion = s.release
	}
	return v
}

func (s *Server) servesGroupVersion(gv schema.GroupVersion) bool {
	for _, t := range s.store.Load().all {
		if t.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// Reform serves another content of obj under the same version, as new defaults, another
// conversion of a custom resource, or another release of the server do. The OpenAPI
// document of its group version then has another hash. Watches are not told.
func (s *Server) Reform(obj Object) error { return s.reform(obj, true) }

// Reconvert is Reform for a change that the document does not show, such as one of the
// conversion webhook. Only the definition of the custom resource changes.
func (s *Server) Reconvert(obj Object) error { return s.reform(obj, false) }

// Upgrade gives the server another release.
func (s *Server) Upgrade(version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release = version
}

func (s *Server) reform(obj Object, schemaToo bool) error {
	t, err := s.tableOf(obj)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := t.Key(obj.GetNamespace(), obj.GetName())
	old := t.current(key)
	if old == nil {
		return fmt.Errorf("kubesim: %s is not there", key)
	}
	m, err := t.Metadata(old)
	if err != nil {
		return err
	}
	obj.SetUID(m.UID)
	obj.SetCreationTimestamp(m.CreationTimestamp)
	setDefaults(obj)
	obj.SetResourceVersion(strconv.FormatUint(old.Version, 10))
	o, err := t.Encode(obj, old.Version)
	if err != nil {
		return err
	}
	e := t.entries[key]
	e.versions[len(e.versions)-1] = &version{old.Version, o}
	if s.forms == nil {
		s.forms = map[schema.GroupVersion]int{}
	}
	if schemaToo {
		s.forms[t.GroupVersion()]++
	}
	t.generation++
	return nil
}

// serveSchema answers with the hash of a group version's OpenAPI document, under
// another hash's address. It does not serve the document itself.
func (s *Server) serveSchema(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, schemas)
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

// schemas is where OpenAPI documents are.
const schemas = "/openapi/v3/"

const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"

// serveDefinition gives the definition of a custom resource, or its metadata. It cannot
// be listed, watched or written.
func (s *Server) serveDefinition(w http.ResponseWriter, r *http.Request, name string) {
	for _, t := range s.store.Load().all {
		if t.Custom && t.GroupResource().String() == name {
			s.mu.Lock()
			generation := t.generation
			s.mu.Unlock()
			partial := metav1.PartialObjectMetadata{
				TypeMeta: metav1.TypeMeta{APIVersion: metav1.SchemeGroupVersion.String(),
					Kind: "PartialObjectMetadata"},
				ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("definition-of-" + name + "-" + t.Kind),
					ResourceVersion: "1", Generation: generation + 1},
			}
			var answer any = partial
			if !strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadata") {
				versions := []any{map[string]any{"name": t.Version, "additionalPrinterColumns": t.Columns}}
				answer = map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
					"metadata": partial.ObjectMeta, "spec": map[string]any{"versions": versions}}
			}
			body, err := json.Marshal(answer)
			if err != nil {
				panic(err) // it always encodes
			}
			kubeapi.WriteJSON(w, http.StatusOK, body)
			return
		}
	}
	kubeapi.WriteStatus(w, apierrors.NewNotFound(schema.GroupResource{Group: "apiextensions.k8s.io",
		Resource: "customresourcedefinitions"}, name))
}

// HideForm undoes Reform's changes of hashes, so that nothing shows the other contents.
func (s *Server) HideForm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forms = nil
	for _, t := range s.store.Load().all {
		t.generation = 0
	}
}
