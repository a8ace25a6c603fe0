package reflector

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The served content of an object may change without a write, and so without a new version:
// by another default or conversion of a custom resource, or with the server's release. A sign
// stands for the form. Each relist asks for it. Under the sign of the last relist it compares
// only versions; under another sign, or none, it compares content.

// sign returns the sign of the served form, "" if it cannot be learned. While the server
// refuses lists, it is not asked for.
func (s *Reflector) sign(ctx context.Context) string {
	if s.link.isRefused() {
		return ""
	}
	since := time.Now()
	if !s.store.State().Synced { // an old sign is as good: the next list then compares content
		since = since.Add(-time.Minute)
	}
	sign, err := s.requests.form(ctx, since)
	if err != nil {
		s.log.V(1).Info("Objects are compared by content, since nothing shows in which form they are served",
			"source", s.store.Source().String(), "err", err)
	}
	return sign
}

// formAnswers has what the servers of one config said about the forms that they serve.
type formAnswers struct {
	turnToAsk
	of map[string]answer // by address and path
}

// answer is the server's answer to a question about its release, a group version or a custom
// resource.
type answer struct {
	text string    // "": the server does not say
	at   time.Time // when it was asked for
}

// servedForm asks for the sign with the credentials of req. It is a hash of the server's
// release, of the hash of the group version's OpenAPI document and, as that follows with some
// delay and does not show each change, of a custom resource's definition, unless that may not
// be read. Sources share the answers that were asked for since then.
func (t *transport) servedForm(req *http.Request, since time.Time) (sign string, err error) {
	server, _, err := splitPath(req.URL.Path)
	if err != nil {
		return "", err
	}
	src, err := sourceOf(req.URL)
	if err != nil {
		return "", err
	}
	path := "/openapi/v3/apis/" + src.Group + "/" + src.Version
	if src.Group == "" {
		path = "/openapi/v3/api/" + src.Version
	}
	end, err := t.forms.begin(req.Context())
	if err != nil {
		return "", err
	}
	defer end()
	ask := func(path, query string) (text string) {
		key := req.URL.Host + server + path
		if a, ok := t.forms.of[key]; ok && a.at.After(since) || err != nil {
			return a.text
		}
		at := time.Now()
		if text, err = t.askForm(req, server+path, query); err == nil {
			t.forms.of[key] = answer{text, at}
		}
		return text
	}
	hash := ask(path, "hash=0") // no document has that hash, so the answer has no body
	if hash == "" {
		return "", err
	}
	var release struct{ GitVersion, GitCommit, BuildDate string }
	if text := ask("/version", ""); json.Unmarshal([]byte(text), &release) != nil || release.GitVersion == "" {
		return "", err
	}
	var crd metav1.PartialObjectMetadata
	if custom(src.Group) {
		text := ask("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+src.Resource+"."+src.Group, "")
		_ = json.Unmarshal([]byte(text), &crd) // nothing, if it may not be read
	} else {
		sign = newerServer(release.GitVersion)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %d", release, hash, crd.UID, crd.Generation))
	return sign + hex.EncodeToString(sum[:8]), err
}

// askForm gets the path: the hash in its ETag if there is a query, otherwise its body. Both
// are "", without an error, if the server refuses or has nothing there.
func (t *transport) askForm(req *http.Request, path, query string) (string, error) {
	resp, body, err := t.fetch(req.Context(), req, path, query)
	switch {
	case resp == nil:
		return "", err
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return "", fmt.Errorf("reflector: ask for the form of objects: %w", failed(resp))
	case resp.StatusCode >= 400:
		return "", nil
	case query != "":
		return resp.Header.Get("ETag"), nil
	}
	return string(body), err
}

// builtIn are the groups of kube-apiserver with a domain's name. Custom resources may be
// in other groups below k8s.io.
var builtIn = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
}

// custom says whether a group may have custom resources. The names of such groups are
// domain names.
func custom(group string) bool {
	return strings.Contains(group, ".") && !slices.Contains(builtIn, group)
}
