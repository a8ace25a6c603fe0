package reflector

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// servedForm asks for the sign with the credentials of req. Sources that wait for it
// share the answers. With late, an answer from a moment ago will do.
func (t *transport) servedForm(req *http.Request, late bool) (sign, definition string, err error) {
	server, _, err := splitPath(req.URL.Path)
	if err != nil {
		return "", "", err
	}
	src, err := sourceOf(req.URL)
	if err != nil {
		return "", "", err
	}
	path := "/openapi/v3/apis/" + src.Group + "/" + src.Version
	if src.Group == "" {
		path = "/openapi/v3/api/" + src.Version
	}
	came, n, end, err := t.forms.begin(req.Context())
	if err != nil {
		return "", "", err
	}
	defer end()
	shared := func(path string, ask func(*http.Request, string, string) (string, error)) (string, error) {
		key := req.URL.Host + server + path
		// For a list, an old sign is no worse than none.
		if f, ok := t.forms.of[key]; ok && (f.n > came || late && time.Since(f.at) < shareFor) {
			return f.sign, nil
		}
		at := time.Now()
		sign, err := ask(req, server, path)
		if err == nil {
			t.forms.of[key] = answer{sign, n, at}
		}
		return sign, err
	}
	if sign, err = shared(path, t.askForm); err != nil || sign == "" {
		return sign, "", err
	}
	if !custom(src.Group) {
		return t.forms.versions[req.URL.Host+server].newer + sign, "", nil
	}
	definition, err = shared("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+src.Resource+"."+src.Group, t.askDefinition)
	return sign, definition, err
}

// shareFor is how long the server's version counts on one connection, and an old
// sign for a late list.
const shareFor = time.Minute

// formAnswers has what the servers of one config said about the forms that they serve.
type formAnswers struct {
	questions
	of       map[string]answer        // by address and path
	versions map[string]serverVersion // by address
}

// answer is the sign of a group version, or of a custom resource.
type answer struct {
	sign string // "": the server does not say
	n    uint64 // number of the question
	at   time.Time
}

// serverVersion is the version of the server at the other end of a connection.
type serverVersion struct {
	version, conn string
	newer         string // see newerServer
	at            time.Time
}

// askForm asks for the schema of a group version under a hash that no schema has.
// The answer has no body and names the schema's real hash. askForm also asks for
// the server's version, once for each connection and each minute: a proxy may
// keep the connection and change the server.
func (t *transport) askForm(req *http.Request, server, path string) (string, error) {
	_, hash, conn, err := t.askAt(req, server+path, "hash=0")
	if err != nil || hash == "" {
		return "", err
	}
	host := req.URL.Host + server
	v := t.forms.versions[host]
	if conn == "" || v.conn != conn || time.Since(v.at) >= shareFor {
		var told struct {
			GitVersion, GitCommit, BuildDate string
		}
		at := time.Now()
		body, _, conn, err := t.askAt(req, server+"/version", "")
		if err != nil || json.Unmarshal(body, &told) != nil || told.GitVersion == "" {
			return "", err
		}
		v = serverVersion{fmt.Sprintf("%q", told), conn, newerServer(told.GitVersion), at}
		t.forms.versions[host] = v
	}
	return hashed(v.version + " " + fmt.Sprintf("%q", hash)), nil
}

// askDefinition asks for the UID and the generation of a custom resource's
// definition. They change with the conversion and the stored version, which the
// schema does not show. The answer is "" if the definition may not be read.
func (t *transport) askDefinition(req *http.Request, server, path string) (string, error) {
	body, _, _, err := t.askAt(req, server+path, "")
	var crd metav1.PartialObjectMetadata
	if err != nil || json.Unmarshal(body, &crd) != nil || crd.Generation == 0 {
		return "", err
	}
	return hashed(fmt.Sprintf("%q %d", crd.UID, crd.Generation)), nil
}

func hashed(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:8])
}

// askAt gets the path. It returns the body, the ETag and the connection. If the server
// refuses or has nothing there, body and tag are empty, without an error.
func (t *transport) askAt(req *http.Request, path, query string) (body []byte, tag, conn string, err error) {
	var over origin
	resp, body, err := t.fetch(over.trace(req.Context()), req, path, query)
	if resp == nil {
		return nil, "", "", err
	}
	switch code := resp.StatusCode; {
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 && code != http.StatusNotImplemented:
		return nil, "", "", fmt.Errorf("reflector: ask for the form of objects: %w", failed(resp))
	case code >= 400:
		return nil, "", "", nil
	}
	conn, _ = over.answeredOver()
	return body, resp.Header.Get("ETag"), conn, err
}
