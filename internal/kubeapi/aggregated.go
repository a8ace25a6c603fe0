package kubeapi

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	discoveryList = "APIGroupDiscoveryList"
	// MediaDiscovery is the media type of one document for all groups.
	MediaDiscovery = MediaJSON + ";g=apidiscovery.k8s.io;v=v2;as=" + discoveryList
)

// AcceptsAggregated says whether the client prefers one document to a document for each
// group version.
func AcceptsAggregated(r *http.Request) bool {
	for _, m := range accepted(r.Header.Get("Accept")) {
		switch {
		case m.media != MediaJSON:
		case m.params["as"] == discoveryList && m.params["g"] == apidiscoveryv2.GroupName && m.params["v"] == "v2":
			return true
		case m.params["as"] == "":
			return false
		}
	}
	return false
}

// WriteDiscovery answers with one document for all groups. As from a server it has an ETag,
// and a client that has the same document gets 304.
func WriteDiscovery(w http.ResponseWriter, r *http.Request, body []byte) {
	tag := fmt.Sprintf(`"%X"`, sha256.Sum256(body))
	w.Header().Set("ETag", tag)
	w.Header().Set("Vary", "Accept")
	if r.Header.Get("If-None-Match") == tag { // a server compares them as they are, too
		w.WriteHeader(http.StatusNotModified)
		return
	}
	writeMedia(w, http.StatusOK, body, MediaDiscovery)
}

// aggregated is the document of all groups, or of the core group.
func (h *Handler) aggregated(core bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: discoveryList, APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	groups, versions := map[string]int{}, map[schema.GroupVersion]int{}
	for _, t := range h.Storage.Types() {
		if (t.Group == "") != core {
			continue
		}
		i, ok := groups[t.Group]
		if !ok {
			i = len(list.Items)
			groups[t.Group] = i
			list.Items = append(list.Items,
				apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: t.Group}})
		}
		g := &list.Items[i]
		n, ok := versions[t.GroupVersion()]
		if !ok {
			n = len(g.Versions)
			versions[t.GroupVersion()] = n
			g.Versions = append(g.Versions,
				apidiscoveryv2.APIVersionDiscovery{Version: t.Version,
					Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent})
		}
		scope := apidiscoveryv2.ScopeCluster
		if t.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		g.Versions[n].Resources = append(g.Versions[n].Resources, apidiscoveryv2.APIResourceDiscovery{
			Resource:         t.Plural,
			ResponseKind:     &metav1.GroupVersionKind{Group: t.Group, Version: t.Version, Kind: t.Kind},
			Scope:            scope,
			SingularResource: t.Singular,
			Verbs:            t.Verbs,
			ShortNames:       t.ShortNames,
			Categories:       t.Categories,
		})
	}
	return list
}
