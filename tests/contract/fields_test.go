package contract

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/cert"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// TestFieldsOfAllKinds selects by fields that some kind has, on each built-in type of a real
// server and of a file: both select the same objects, or both refuse the field.
func TestFieldsOfAllKinds(t *testing.T) {
	t.Parallel()
	s := apiserver.Start(t, apiserver.Options{NoAudit: true})
	server := newClient(t, s.Config())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := cert.MakeCSR(key, &pkix.Name{CommonName: "c"}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	request, err := json.Marshal(csr)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range [][2]string{
		{"/api/v1/nodes", `{"metadata":{"name":"n1"}}`},
		{"/api/v1/namespaces/default/pods",
			`{"metadata":{"name":"p"},"spec":{"nodeName":"n1","containers":[{"name":"c","image":"i"}]}}`},
		{"/api/v1/persistentvolumes", `{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}}`},
		{"/apis/certificates.k8s.io/v1/certificatesigningrequests",
			`{"metadata":{"name":"c"},"spec":{"signerName":"example.com/s","usages":["client auth"],"request":` + string(request) + `}}`},
		{"/apis/resource.k8s.io/v1/resourceslices",
			`{"metadata":{"name":"s"},"spec":{"driver":"d.example.com","nodeName":"n1","pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`},
		{"/apis/resource.k8s.io/v1/resourceslices",
			`{"metadata":{"name":"all"},"spec":{"driver":"e.example.com","allNodes":true,"pool":{"name":"p","generation":1,"resourceSliceCount":1}}}`},
	} {
		if a := server.do(t, http.MethodPost, o[0], http.Header{"Content-Type": {jsonType}},
			[]byte(o[1])); a.code != http.StatusCreated {
			t.Fatalf("%s: %d %s", o[0], a.code, a.body)
		}
	}
	var types []kept
	var paths []string
	for _, base := range []string{"/api/v1", "/apis/apps/v1", "/apis/batch/v1", "/apis/certificates.k8s.io/v1",
		"/apis/events.k8s.io/v1",
		"/apis/rbac.authorization.k8s.io/v1", "/apis/resource.k8s.io/v1", "/apis/storage.k8s.io/v1"} {
		var list metav1.APIResourceList
		if err := json.Unmarshal(server.do(t, http.MethodGet, base, nil, nil).body, &list); err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !strings.Contains(fmt.Sprint(r.Verbs), "watch") || r.Name == "secrets" {
				continue
			}
			scope := boltstore.ScopeCluster
			if r.Namespaced {
				scope = boltstore.ScopeNamespaced
			}
			group, _, _ := strings.Cut(strings.TrimPrefix(base, "/apis/"), "/v1")
			types = append(types, kept{untyped(list.GroupVersion, r.Kind), strings.TrimPrefix(group, "/api"), r.Name,
				scope})
			paths = append(paths, base+"/"+r.Name)
		}
	}
	h := httptest.NewServer(apifile.New(keep(t, s.Config(), types...), apifile.Options{}))
	t.Cleanup(h.Close)
	file := &client{host: h.URL, http: h.Client()}
	for _, path := range paths {
		for _, field := range []string{"metadata.namespace=default", "metadata.namespace=",
			"metadata.namespace!=default", "metadata.uid=1", "name=v",
			"spec.signerName=example.com/s", "spec.signerName!=example.com/s", "spec.driver=d.example.com",
			"spec.nodeName=n1", "spec.nodeName=", "status.podIPs=",
			"status.podIPs=1.2.3.4", "status.replicas=0", "status.successful=0", "status.phase=Active",
			"spec.unschedulable=false", "type=Normal", "reason=x"} {
			path := path + "?fieldSelector=" + url.QueryEscape(field)
			if of, have := selectedOf(t, server, path), selectedOf(t, file, path); of != have {
				t.Errorf("%s: a server has %s, a file %s", path, of, have)
			}
		}
	}
}

// selectedOf returns the names in a list, or the code of a failure and whether it says
// that the field is known.
func selectedOf(t *testing.T, c *client, path string) string {
	t.Helper()
	a := c.do(t, http.MethodGet, path, nil, nil)
	if a.code != http.StatusOK {
		return fmt.Sprint(a.code, " known: ", strings.Contains(string(a.body), "is not a known field selector"))
	}
	var names []string
	items, _ := decode(t, a.body)["items"].([]any)
	for _, item := range items {
		names = append(names, (&unstructured.Unstructured{Object: item.(map[string]any)}).GetName())
	}
	return fmt.Sprint(names)
}
