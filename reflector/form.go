package reflector

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a server serves of an object may change without a write, and so without a
// new version: with the defaults or the conversion of a custom resource, or with
// a server of another release. A relist compares versions only under the sign
// that it knows from the last one. Under another sign, or none, it compares
// content.

// servedForm returns the sign of the form in which the server serves the source's
// objects, "" where it cannot be learned. Where the definition of a custom
// resource may not be read the one that the file knows is kept, so that the sign
// does not change with the permission.
func (s *ListerWatcher) servedForm(ctx context.Context, late bool) (string, error) {
	if s.o.Server == "" { // not a client whose requests we can make
		return "", nil
	}
	p := &probe{form: true, late: late}
	if err := intercept(ctx, s.raw, p); err != nil || p.err != nil || p.sign == "" {
		return "", cmp.Or(err, p.err)
	}
	definition := p.definition
	if definition == "" {
		_, definition, _ = strings.Cut(s.store.ServedForm(), "/")
	}
	if definition == "" {
		return p.sign, nil
	}
	return p.sign + "/" + definition, nil
}

// builtIn are the groups of kube-apiserver that have a domain's name. Custom
// resources may be in others below k8s.io.
var builtIn = []string{
	"admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io", "authentication.k8s.io",
	"authorization.k8s.io", "certificates.k8s.io", "coordination.k8s.io", "discovery.k8s.io", "events.k8s.io",
	"flowcontrol.apiserver.k8s.io", "internal.apiserver.k8s.io", "networking.k8s.io", "node.k8s.io",
	"rbac.authorization.k8s.io", "resource.k8s.io", "scheduling.k8s.io", "storage.k8s.io", "storagemigration.k8s.io",
}

// custom says whether a group may have custom resources. Theirs are domain names.
func custom(group string) bool {
	return strings.Contains(group, ".") && !slices.Contains(builtIn, group)
}

// A server ends the watches of a custom resource when its definition changes. It
// resumes them at any version that it has seen since, such as that of a write
// that followed: then no list would notice what has changed on all others.

// mostFormErrors is how many relists in a row may fail since the form is not told.
const mostFormErrors = 3

// formLag is how long a watch lasts, in seconds, after which the sign is asked for
// once more: it may lag behind what is served, and what is served behind it.
const formLag = 30

// mostFormLag is how long it lasts at most where the sign cannot be asked for: the
// time doubles with each question that fails.
const mostFormLag = 600

// formDoubtful says whether the sign is to be asked for, and if so how many
// seconds the next watch is to last.
func (s *ListerWatcher) formDoubtful() (wait int64, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.formWait, s.formDue > 0
}

// formDoubted notes that a watch has ended before its time. The sign is asked for
// before the next one, and once more before the one that follows.
func (s *ListerWatcher) formDoubted() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if custom(s.store.Source().Group) {
		s.formDue, s.formWait = 2, max(s.formWait, formLag)
	}
}

// reformed says whether the form is another than that of the last relist, where
// that is in doubt. A server that does not tell it is asked before the next watch.
func (s *ListerWatcher) reformed(ctx context.Context) bool {
	_, due := s.formDoubtful()
	known := s.store.ServedForm()
	if known == "" { // each list compares content
		s.mu.Lock()
		defer s.mu.Unlock()
		s.formDue = 0
		return false
	}
	if !due {
		return false
	}
	form, err := s.servedForm(ctx, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.formWait = min(2*s.formWait, mostFormLag)
		return false
	}
	s.formDue--
	s.formWait = formLag
	return form != "" && form != known
}

// lateForm is the sign for a list of which a page has come: before, it would be
// asked for as often as a list is refused. A sign from before the list's end is
// right or old, so what has changed since is noticed. It is "" where it cannot be
// learned.
func (s *ListerWatcher) lateForm(ctx context.Context) string {
	s.mu.Lock()
	late := s.formErrors == 0 // else it is to be known whether it can be asked for
	s.mu.Unlock()
	form, err := s.servedForm(ctx, late)
	s.formAnswered(err)
	if err != nil {
		return ""
	}
	return form
}

// formAnswered notes whether the sign could be asked for.
func (s *ListerWatcher) formAnswered(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.formErrors++; err == nil {
		s.formErrors = 0
	}
}

// servedForm asks for the sign, with the credentials of req. Sources that wait for
// it share the answers. With late an answer that is not quite new will do.
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
	before := t.formed.begun.Load()
	select {
	case t.formed.turn <- struct{}{}:
		defer func() { <-t.formed.turn }()
	case <-req.Context().Done():
		return "", "", req.Context().Err()
	}
	n := t.formed.begun.Add(1)
	shared := func(path string, ask func(*http.Request, string, string) (string, error)) (string, error) {
		key := req.URL.Host + server + path
		// Waited for, or late: a sign from before the list is no worse than none.
		if f, ok := t.formed.of[key]; ok && (f.n > before || late && time.Since(f.at) < shareFor) {
			return f.sign, nil
		}
		at := time.Now()
		sign, err := ask(req, server, path)
		if err == nil {
			t.formed.of[key] = form{sign, n, at}
		}
		return sign, err
	}
	if sign, err = shared(path, t.askForm); err != nil || sign == "" || !custom(src.Group) {
		return sign, "", err
	}
	definition, err = shared("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"+src.Resource+"."+src.Group, t.askDefinition)
	return sign, definition, err
}

// shareFor is how long the server's version holds on one connection, and a sign
// for a list that has been read without one.
const shareFor = time.Minute

// formed is what the servers of one config said of the forms that they serve, as
// asked is.
type formed struct {
	begun    atomic.Uint64 // counts the questions
	turn     chan struct{} // to ask, and to touch the rest
	of       map[string]form
	versions map[string]serverVersion // by address
}

func newFormed() *formed {
	return &formed{turn: make(chan struct{}, 1), of: map[string]form{}, versions: map[string]serverVersion{}}
}

// form is that of a group version, or of a custom resource.
type form struct {
	sign string // "": the server does not tell it
	n    uint64 // number of the question
	at   time.Time
}

// serverVersion is that of the process at the other end of a connection.
type serverVersion struct {
	version, conn string
	at            time.Time
}

// askForm asks for the schema of a group version under a hash that none has: the
// answer, which has no body, names the one that it has. It asks for the server's
// version too, once for each connection, and after a minute: a proxy may keep the
// connection and change the server.
func (t *transport) askForm(req *http.Request, server, path string) (string, error) {
	_, hash, conn, err := t.askAt(req, server+path, "hash=0")
	if err != nil || hash == "" {
		return "", err
	}
	host := req.URL.Host + server
	v := t.formed.versions[host]
	if conn == "" || v.conn != conn || time.Since(v.at) >= shareFor {
		var told struct {
			GitVersion, GitCommit, BuildDate string
		}
		at := time.Now()
		body, _, conn, err := t.askAt(req, server+"/version", "")
		if err != nil || json.Unmarshal(body, &told) != nil || told.GitVersion == "" {
			return "", err
		}
		v = serverVersion{fmt.Sprintf("%q", told), conn, at}
		t.formed.versions[host] = v
	}
	return hashed(v.version + " " + fmt.Sprintf("%q", hash)), nil
}

// askDefinition asks for the UID and the generation of the definition of a custom
// resource, which tell of changes that its schema does not: of the conversion, or
// of the stored version. It is "" where that may not be read.
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

// askAt gets what is at the path, the tag that it has, and over which connection.
// Body and tag are empty, without an error, where the server refuses it or has
// nothing there.
func (t *transport) askAt(req *http.Request, path, query string) (body []byte, tag, conn string, err error) {
	var over link
	ctx, cancel := context.WithTimeout(context.WithValue(req.Context(), probeKey{}, nil), askPatience)
	defer cancel()
	get := req.Clone(over.trace(ctx))
	get.URL.Path, get.URL.RawPath, get.URL.RawQuery = path, "", query
	get.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
	resp, err := t.gate.roundTrip(get, t.next.RoundTrip)
	if err != nil {
		return nil, "", "", err
	}
	defer resp.Body.Close()
	switch code := resp.StatusCode; {
	case code == http.StatusRequestTimeout || code == http.StatusTooManyRequests || code >= 500 && code != http.StatusNotImplemented:
		return nil, "", "", fmt.Errorf("reflector: ask for the form of objects: %s", resp.Status)
	case code >= 400:
		return nil, "", "", nil
	}
	if query == "" {
		body, err = io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	}
	conn, _ = over.told()
	return body, resp.Header.Get("ETag"), conn, err
}
