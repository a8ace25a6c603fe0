package kubeapi

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func (h *Handler) servesGroupVersion(gv schema.GroupVersion) bool {
	for _, t := range h.Storage.Types() {
		if t.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// isBuiltIn says whether the group version has a type that is not a custom resource.
// For an unknown resource, a group of custom resources answers in plain text, and a
// built-in one with a Status.
func (h *Handler) isBuiltIn(gv schema.GroupVersion) bool {
	for _, t := range h.Storage.Types() {
		if t.GroupVersion() == gv && !t.Custom {
			return true
		}
	}
	return false
}

func (h *Handler) coreVersions(host string) *metav1.APIVersions {
	return &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: host},
		},
	}
}

// group returns a group's versions in the order of the types, or nil.
func (h *Handler) group(name string) *metav1.APIGroup {
	g := &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
	seen := map[string]bool{}
	for _, t := range h.Storage.Types() {
		if t.Group == name && t.Group != "" && !seen[t.Version] {
			seen[t.Version] = true
			g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{
				GroupVersion: t.GroupVersion().String(), Version: t.Version,
			})
		}
	}
	if len(g.Versions) == 0 {
		return nil
	}
	g.PreferredVersion = g.Versions[0]
	return g
}

func (h *Handler) groupList() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"},
		Groups: []metav1.APIGroup{}}
	seen := map[string]bool{"": true}
	for _, t := range h.Storage.Types() {
		if !seen[t.Group] {
			seen[t.Group] = true
			g := h.group(t.Group)
			g.TypeMeta = metav1.TypeMeta{}
			list.Groups = append(list.Groups, *g)
		}
	}
	return list
}

func (h *Handler) resourceList(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv.String()}
	if gv.Group != "" {
		list.APIVersion = "v1"
	}
	for _, t := range h.Storage.Types() {
		if t.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name:         t.Plural,
				SingularName: t.Singular,
				Namespaced:   t.Namespaced,
				Kind:         t.Kind,
				Verbs:        t.Verbs,
				ShortNames:   t.ShortNames,
				Categories:   t.Categories,
			})
		}
	}
	return list
}

func (h *Handler) serveDiscovery(w http.ResponseWriter, r *http.Request, p Path) {
	var answer any
	aggregated, ofGroups := false, false
	switch path := strings.TrimSuffix(r.URL.Path, "/"); {
	case path == "/readyz" || path == "/healthz" || path == "/livez":
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, "ok") // the client left
		return
	case path == "/version":
		answer = h.Version()
	case h.Aggregated && (path == "/api" || path == "/apis") && AcceptsAggregated(r):
		answer, aggregated, ofGroups = h.aggregated(path == "/api"), true, path == "/apis"
	case path == "/api":
		answer = h.coreVersions(r.Host)
	case path == "/apis":
		answer, ofGroups = h.groupList(), true
	case p.GroupVersion.Version != "" && h.servesGroupVersion(p.GroupVersion):
		answer = h.resourceList(p.GroupVersion)
	case strings.HasPrefix(path, "/apis/"):
		if g := h.group(strings.TrimPrefix(path, "/apis/")); g != nil {
			answer, ofGroups = g, true
		}
	}
	switch {
	case answer == nil:
		http.NotFound(w, r)
		return
	case r.Method != http.MethodGet && !(ofGroups && r.Method == http.MethodHead): // as at a server
		WriteStatus(w, errMethod())
		return
	}
	body, err := json.Marshal(answer)
	if err != nil {
		panic(err) // discovery types always encode
	}
	body = append(body, '\n')
	if aggregated {
		WriteDiscovery(w, r, body)
		return
	}
	writeMedia(w, http.StatusOK, body, MediaJSON)
}
