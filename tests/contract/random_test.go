package contract

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
	"github.com/kubewake/kubewake/tests/apiserver"
)

// TestRandomReads sends the same random reads to a real server and to a file that
// informers have kept while the objects were written: both give the same answers, with
// the same objects in the same order. KUBEWAKE_READS says how many there are,
// KUBEWAKE_SEED which.
func TestRandomReads(t *testing.T) {
	t.Parallel()
	n, err := strconv.Atoi(cmp.Or(os.Getenv("KUBEWAKE_READS"), "500"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("KUBEWAKE_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("KUBEWAKE_SEED=%d", seed)
	s := apiserver.Start(t, apiserver.Options{NoAudit: true})
	if err := s.InstallWidgets(t.Context()); err != nil {
		t.Fatal(err)
	}
	r := &reads{rnd: rand.New(rand.NewPCG(seed, 1)), server: newClient(t, s.Config()), versions: map[string][]string{}}
	for _, ns := range []string{"a", "ab", "b"} {
		r.send(t, http.MethodPost, "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`)
	}
	db := keep(t, s.Config(),
		kept{&corev1.ConfigMap{}, "", "configmaps", boltstore.ScopeNamespaced},
		kept{&corev1.Pod{}, "", "pods", boltstore.ScopeNamespaced},
		kept{untyped("v1", "Service"), "", "services", boltstore.ScopeNamespaced},
		kept{untyped("example.com/v1", "Widget"), "example.com", "widgets", boltstore.ScopeNamespaced})
	for range 250 {
		r.write(t)
	}
	h := httptest.NewServer(apifile.New(db, apifile.Options{}))
	t.Cleanup(h.Close)
	r.file = &client{host: h.URL, http: h.Client()}
	for _, of := range randomTypes { // the file gets there, or the list waits and fails
		last := r.versions[of.resource]
		r.file.list(t, of.path("")+"?resourceVersionMatch=NotOlderThan&resourceVersion="+last[len(last)-1])
	}
	var wg sync.WaitGroup
	places := make(chan struct{}, 8)
	for range n {
		path, accept := r.read()
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			r.compare(t, path, accept)
		})
	}
	wg.Wait()
}

// reads are random, on two servers.
type reads struct {
	rnd          *rand.Rand
	server, file *client
	versions     map[string][]string // of the writes, by resource
}

type randomType struct{ base, resource, kind string }

func (r randomType) path(namespace string) string {
	if namespace == "" {
		return r.base + "/" + r.resource
	}
	return r.base + "/namespaces/" + namespace + "/" + r.resource
}

var randomTypes = []randomType{{"/api/v1", "configmaps", "ConfigMap"}, {"/api/v1", "pods", "Pod"},
	{"/api/v1", "services", "Service"}, {"/apis/example.com/v1", "widgets", "Widget"}}

func (r *reads) pick(of ...string) string { return of[r.rnd.IntN(len(of))] }

func (r *reads) name() string {
	return r.pick("x", "y", "z", "x-1", strings.Repeat("n", 63))
}

func (r *reads) send(t *testing.T, method, path, body string) *answer {
	t.Helper()
	media := jsonType
	if method == http.MethodPatch {
		media = "application/merge-patch+json"
	}
	return r.server.do(t, method, path, http.Header{"Content-Type": {media}, "Accept": {jsonType}}, []byte(body))
}

// write creates, changes or deletes an object.
func (r *reads) write(t *testing.T) {
	t.Helper()
	of := randomTypes[r.rnd.IntN(len(randomTypes))]
	path, name := of.path(r.pick("a", "ab", "b")), r.name()
	labels := fmt.Sprintf(`{"app":%s,"tier":%s}`, r.pick("null", `"p"`, `"q"`, `""`), r.pick("null", `"p"`))
	spec := map[string]string{"pods": `{"containers":[{"name":"c","image":"i"}],"nodeName":"` + r.pick("n1", "n2") +
		`","terminationGracePeriodSeconds":0}`,
		"services": `{"ports":[{"port":80}],"type":"` + r.pick("ClusterIP", "NodePort") + `"}`}[of.resource]
	a := &answer{code: http.StatusConflict}
	switch r.rnd.IntN(4) {
	case 0:
		a = r.send(t, http.MethodDelete, path+"/"+name, `{}`)
	default:
		a = r.send(t, http.MethodPost, path,
			fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"labels":%s},"spec":%s}`,
				strings.TrimPrefix(strings.TrimPrefix(of.base, "/apis/"), "/api/"), of.kind, name,
				strings.ReplaceAll(labels, "null", `"n"`), cmp.Or(spec, "{}")))
		if a.code == http.StatusConflict {
			a = r.send(t, http.MethodPatch, path+"/"+name, `{"metadata":{"labels":`+labels+`}}`)
		}
		if a.code != http.StatusCreated && a.code != http.StatusOK {
			t.Fatalf("%s %s: %d %s", path, name, a.code, a.body)
		}
	}
	if v := (&unstructured.Unstructured{Object: decode(t, a.body)}).GetResourceVersion(); v != "" {
		r.versions[of.resource] = append(r.versions[of.resource], v)
	}
}

// read is a random read: its path, and what the client accepts.
func (r *reads) read() (path, accept string) {
	of := randomTypes[r.rnd.IntN(len(randomTypes))]
	path = of.path(r.pick("", "a", "ab", "b", "none"))
	if strings.Contains(path, "/namespaces/") && r.rnd.IntN(5) == 0 {
		path += "/" + r.pick(r.name(), "none")
	}
	q := url.Values{}
	some := func(of int, key string, values ...string) {
		if r.rnd.IntN(of) == 0 {
			q.Set(key, r.pick(values...))
		}
	}
	versions := append([]string{"", "0", "junk", "-1"}, r.versions[of.resource]...)
	some(3, "resourceVersion", versions...)
	some(4, "resourceVersionMatch", "Exact", "NotOlderThan", "NotOlderThan", "junk")
	some(3, "labelSelector", "app", "!app", "app=p", "app!=p", "app in (p,q)", "app notin (p)", "app,tier", "app=",
		"app=p,app=q", "junk=(", "a b")
	selected := []string{"metadata.name!=x", "metadata.namespace=a", "metadata.namespace!=a", "junk", "spec.none=x",
		"metadata.name=x,metadata.namespace=a"}
	switch of.resource {
	case "pods":
		selected = append(selected, "spec.nodeName=n1", "status.phase=Pending",
			"spec.nodeName!=n1,status.phase!=Running")
	case "services":
		selected = append(selected, "spec.type=NodePort", "spec.type!=NodePort")
	}
	some(3, "fieldSelector", selected...)
	if r.rnd.IntN(8) == 0 {
		q.Set("watch", r.pick("true", "1", "false"))
		q.Set("timeoutSeconds", "1")
		some(2, "allowWatchBookmarks", "true", "false")
		some(3, "sendInitialEvents", "true", "false")
	} else {
		some(3, "limit", "500", "0", "junk") // a file applies none
	}
	if sel := q.Get("fieldSelector"); strings.Contains(sel, "metadata.name=") ||
		strings.Contains(sel, "metadata.namespace=") || strings.Contains(sel, "spec.nodeName=") {
		// a server then reads the one object as it is now, has no second page of one namespace,
		// or knows by an index that there is none
		q.Del("limit")
	}
	if _, err := strconv.ParseUint(cmp.Or(q.Get("resourceVersion"), "0"), 10, 64); err != nil &&
		!strings.HasSuffix(path, of.resource) {
		q.Del("resourceVersion") // 500 of a get, and 400 of a list: here it is 400 in both cases
	}
	metadata := "PartialObjectMetadata"
	if strings.HasSuffix(path, of.resource) && !slices.Contains([]string{"true", "1"}, q.Get("watch")) {
		metadata += "List"
	}
	return path + "?" + q.Encode(),
		r.pick(jsonType, jsonType, "*/*", "application/json;as="+metadata+";v=v1;g=meta.k8s.io",
			"application/json;as=Table;v=v1;g=meta.k8s.io, application/json", "application/json;q=0.2", "text/html")
}

// compare sends a read to both.
func (r *reads) compare(t *testing.T, path, accept string) {
	t.Helper()
	server, file := saidOf(t, r.server, path, accept), saidOf(t, r.file, path, accept)
	if server != file {
		t.Errorf("%s, as %s: a server says\n%s\nand a file\n%s", path, accept, server, file)
	}
}

// saidOf is the compared part of an answer: objects by name and version, or the code of a
// failure. Versions of lists are the file's own.
func saidOf(t *testing.T, c *client, path, accept string) string {
	t.Helper()
	a := c.do(t, http.MethodGet, path, http.Header{"Accept": {accept}}, nil)
	if a.code != http.StatusOK {
		return strconv.Itoa(a.code)
	}
	of := func(o map[string]any) string {
		meta, _ := o["metadata"].(map[string]any)
		_, marked, _ := unstructured.NestedString(meta, "annotations", metav1.InitialEventsAnnotationKey)
		if rows, ok := o["rows"].([]any); ok && len(rows) == 1 { // of a watch
			meta, _ = rows[0].(map[string]any)["object"].(map[string]any)["metadata"].(map[string]any)
		}
		if meta["name"] == nil {
			return fmt.Sprint(o["kind"], " ", marked)
		}
		return fmt.Sprint(o["kind"], " ", meta["namespace"], "/", meta["name"], "@", meta["resourceVersion"])
	}
	var lines []string
	for in := json.NewDecoder(strings.NewReader(string(a.body))); ; {
		var o map[string]any
		if in.Decode(&o) != nil {
			break
		}
		if event, ok := o["object"].(map[string]any); ok && o["type"] != nil {
			// a bookmark that is due
			if line := fmt.Sprint(o["type"], " ", of(event)); !strings.HasSuffix(line, "false") {
				lines = append(lines, line)
			}
			continue
		}
		lines = append(lines, of(o))
		items, _ := o["items"].([]any)
		rows, _ := o["rows"].([]any)
		for _, item := range slices.Concat(items, rows) {
			object := item.(map[string]any)
			if row, ok := object["object"].(map[string]any); ok {
				object = row
			}
			lines = append(lines, of(object))
		}
		if meta, ok := o["metadata"].(map[string]any); ok && len(items)+len(rows) > 0 {
			next, _ := meta["continue"].(string)
			lines = append(lines, fmt.Sprint("more ", next != "", " ", meta["remainingItemCount"]))
		}
	}
	return strings.Join(lines, "\n")
}
