package kubeapi

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Path is the parsed path of a URL.
type Path struct {
	GroupVersion                           schema.GroupVersion
	Resource, Namespace, Name, Subresource string
	Rest                                   string // the part after the subresource, as for a proxy
}

// ParsePath returns the zero Path for a path that is not below a group version, or that
// has an empty element in the place of group, version or resource, which no server
// answers. The path of the group version itself has no resource.
func ParsePath(path string) Path {
	parts := strings.Split(strings.TrimRight(strings.TrimPrefix(path, "/"), "/"), "/")
	var p Path
	switch {
	case len(parts) >= 2 && parts[0] == "api":
		p.GroupVersion, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) >= 3 && parts[0] == "apis":
		p.GroupVersion, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return p
	}
	if p.GroupVersion.Version == "" ||
		p.GroupVersion.Group == "" && strings.HasPrefix(strings.TrimPrefix(path, "/"), "apis/") {
		return Path{}
	}
	if len(parts) >= 3 && parts[0] == "namespaces" && !slices.Contains([]string{"status", "finalize"}, parts[2]) {
		p.Namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 0 && parts[0] == "" {
		return Path{}
	}
	for i, dst := range []*string{&p.Resource, &p.Name, &p.Subresource} {
		if i < len(parts) {
			*dst = parts[i]
		}
	}
	p.Rest = strings.Join(parts[min(3, len(parts)):], "/")
	return p
}

// Verb is the API's verb of a request on the path.
func (p Path) Verb(method string, q url.Values) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if p.Name == "" {
			return "deletecollection"
		}
		return "delete"
	}
	switch {
	case p.Resource == "" || p.Name != "":
		return "get"
	case isTrue(q["watch"]):
		return "watch"
	default:
		return "list"
	}
}

// isTrue is the value of a boolean parameter by the API's rules: anything but 0 and
// false.
func isTrue(v []string) bool { return len(v) > 0 && v[0] != "0" && !strings.EqualFold(v[0], "false") }
