package examples

import (
	"net/url"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/internal/kubesim"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// proofs are the paths whose last list proves that nothing was missed: it asks for no
// older state than a version. Its pages bring metadata, which is compared.
type proofs map[string]bool

// firstPage is the first page of a relist.
const firstPage = 250

// has says whether the request is of such a list.
func (p proofs) has(verb, path string, q url.Values) bool {
	if verb != "list" {
		return false
	}
	if q.Get("continue") == "" {
		n, err := strconv.Atoi(q.Get("limit"))
		// a list of few objects that asks for the version
		asks := err == nil && n < firstPage && q.Get("resourceVersion") == ""
		p[path] = q.Get("resourceVersionMatch") == string(metav1.ResourceVersionMatchNotOlderThan)
		if asks { // it has one page: any further ones are a relist's
			return true
		}
	}
	return p[path]
}

// fullReads counts the requests that read all objects.
func fullReads(sim *kubesim.Server) (n int) {
	p := proofs{}
	for _, r := range sim.Requests() {
		if r.FullRead() && !p.has(r.Verb, r.Path, r.Query) {
			n++
		}
	}
	return n
}

// readsAll says whether a request reads all objects. It must be called for all requests
// in their order.
func (p proofs) readsAll(t *testing.T, r apiserver.Request) bool {
	t.Helper()
	u, err := url.Parse(r.URI)
	if err != nil {
		t.Fatal(err)
	}
	return r.FullRead() && !p.has(r.Verb, u.Path, u.Query())
}
