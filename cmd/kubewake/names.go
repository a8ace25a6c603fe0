package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// mostNames is how many names a completion shows. For fewer, the user types another
// letter.
const mostNames = 300

// names answers the lists of a completion. They have the names that begin with a prefix,
// and nothing else of the objects: only keys are read.
type names struct {
	next   http.RoundTripper
	db     *dbFile
	prefix string
}

// nameOf is the name to complete, in NAME or TYPE/NAME.
func nameOf(to string) string { return to[strings.Index(to, "/")+1:] }

// RoundTrip implements http.RoundTripper.
func (t *names) RoundTrip(r *http.Request) (*http.Response, error) {
	p := kubeapi.ParsePath(r.URL.Path)
	if p.Resource == "" || p.Name != "" || r.Method != http.MethodGet || r.URL.Query().Has("watch") {
		return t.next.RoundTrip(r)
	}
	body, err := t.list(r, p)
	switch {
	case errors.Is(err, errOwned):
		r = r.Clone(r.Context()) // the API has no names alone
		r.Header.Set("Accept", "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io")
		return t.next.RoundTrip(r)
	case err != nil:
		return nil, err
	}
	return &http.Response{
		Status: http.StatusText(http.StatusOK), StatusCode: http.StatusOK, Proto: "HTTP/1.1", ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)), Request: r,
	}, nil
}

// valueIn is the value that all of a source's objects have in the index by namespace, ""
// if they have several or none.
func valueIn(st boltstore.State, namespace string) string {
	if st.Scope == boltstore.ScopeCluster {
		return ""
	}
	return namespace
}

// errOwned: another process has the file open.
var errOwned = errors.New("another process has the file open")

// list is a list of the names, sorted.
func (t *names) list(r *http.Request, p kubeapi.Path) ([]byte, error) {
	typ := p.GroupVersion.WithResource(p.Resource).GroupResource().String()
	reader, sources, err := t.db.answering(io.Discard, typ, p.Namespace, p.Namespace == "", nil)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	if reader.owner != nil {
		return nil, errOwned
	}
	var found []string
	for _, st := range sources {
		value := valueIn(st, p.Namespace)
		err := reader.index(r.Context(), query{source: st}, cache.NamespaceIndex, value, func(v indexValue) error {
			if p.Namespace != "" && v.Value != "" && v.Value != p.Namespace {
				return nil
			}
			for _, key := range v.Keys {
				if _, name, err := cache.SplitMetaNamespaceKey(key); err == nil && strings.HasPrefix(name, t.prefix) {
					found = append(found, name)
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(found)
	found = slices.Compact(found)
	type object map[string]any
	items := []object{}
	for _, name := range found[:min(len(found), mostNames)] {
		items = append(items, object{"apiVersion": sources[0].APIVersion, "kind": sources[0].Kind,
			"metadata": object{"name": name, "namespace": p.Namespace}})
	}
	return json.Marshal(object{"apiVersion": sources[0].APIVersion, "kind": sources[0].Kind + "List",
		"metadata": object{}, "items": items})
}
