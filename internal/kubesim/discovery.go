package kubesim

import (
	"runtime"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiversion "k8s.io/apimachinery/pkg/version"
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

var verbs = metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}

func (s *Server) servesGroupVersion(gv schema.GroupVersion) bool {
	for _, t := range s.tables {
		if t.GroupVersion() == gv {
			return true
		}
	}
	return false
}

// isBuiltIn says whether the group version has a type that is not a custom resource.
// For an unknown resource, a group of custom resources answers in plain text, and a
// built-in one with a Status.
func (s *Server) isBuiltIn(gv schema.GroupVersion) bool {
	for _, t := range s.tables {
		if t.GroupVersion() == gv && !t.kind.custom {
			return true
		}
	}
	return false
}

func (s *Server) coreVersions(host string) *metav1.APIVersions {
	return &metav1.APIVersions{
		TypeMeta: metav1.TypeMeta{Kind: "APIVersions"},
		Versions: []string{"v1"},
		ServerAddressByClientCIDRs: []metav1.ServerAddressByClientCIDR{
			{ClientCIDR: "0.0.0.0/0", ServerAddress: host},
		},
	}
}

// group returns a group's versions in the order of Options.Resources, or nil.
func (s *Server) group(name string) *metav1.APIGroup {
	g := &metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name}
	seen := map[string]bool{}
	for _, t := range s.tables {
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

func (s *Server) groupList() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
	seen := map[string]bool{"": true}
	for _, t := range s.tables {
		if !seen[t.Group] {
			seen[t.Group] = true
			g := s.group(t.Group)
			g.TypeMeta = metav1.TypeMeta{}
			list.Groups = append(list.Groups, *g)
		}
	}
	return list
}

func (s *Server) resourceList(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList"}, GroupVersion: gv.String()}
	if gv.Group != "" {
		list.APIVersion = "v1"
	}
	for _, t := range s.tables {
		if t.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name:         t.Plural,
				SingularName: strings.ToLower(t.Kind),
				Namespaced:   t.Namespaced,
				Kind:         t.Kind,
				Verbs:        verbs,
				ShortNames:   t.ShortNames,
			})
		}
	}
	return list
}
