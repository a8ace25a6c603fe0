package kubectl

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/kubewake/kubewake/boltstore"
)

const (
	jsonType  = "application/json"
	tableForm = ";as=Table;v=v1;g=meta.k8s.io"

	metadataForm = ";as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
)

// TestSideBySide: a file answers like the server from which it was mirrored.
func TestSideBySide(t *testing.T) {
	w := startWorld(t)
	client, err := rest.HTTPClientFor(w.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, form := range []boltstore.Form{boltstore.FormTyped, boltstore.FormUnstructured} {
		t.Run(string(form), func(t *testing.T) {
			file, _ := w.mirror(t, form)
			for _, r := range w.types {
				t.Run(r.Resource.Resource, func(t *testing.T) {
					w.compare(t, client, file, r.path(), jsonType+tableForm)
					w.compare(t, client, file, r.path()+"?includeObject=Object", jsonType+tableForm)
					w.compare(t, client, file, r.path()+"?includeObject=None", jsonType+tableForm)
					w.compare(t, client, file, r.path(), jsonType)
					var list struct {
						Items []metav1.PartialObjectMetadata
					}
					if err := json.Unmarshal(ask(t, client, w.Config().Host+r.path(), jsonType).body,
						&list); err != nil || len(list.Items) == 0 {
						t.Fatal(err, list)
					}
					one := r.path() + "/" + list.Items[0].Name
					w.compare(t, client, file, one, jsonType+tableForm)
				})
			}
			pods := "/api/v1/namespaces/shop/pods"
			for _, tc := range []struct{ path, accept string }{
				{pods + "?includeObject=All", jsonType + tableForm},
				{pods + "/none", jsonType + tableForm},
				{pods + "/none", jsonType},
				{pods + "?labelSelector=app%3Dnone", jsonType},
				{pods + "?labelSelector=app%3Dnone", jsonType + tableForm},
				{pods, "application/vnd.kubernetes.protobuf" + tableForm + ", " + jsonType + tableForm},
			} {
				w.compare(t, client, file, tc.path, tc.accept)
			}
			for _, path := range []string{pods, "/apis/example.com/v1/namespaces/shop/gadgets"} {
				for _, query := range []string{"", "&includeObject=None", "&includeObject=Object"} {
					w.compareWatch(t, client, file,
						path+"?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=60"+query)
				}
			}
		})
	}
	t.Run("metadata", func(t *testing.T) { testMetadata(t, w, client) })
	t.Run("kubectl", func(t *testing.T) { testKubectl(t, w) })
}

// testMetadata: a file with metadata only answers like a server that is asked for
// metadata.
func testMetadata(t *testing.T, w *world, client *http.Client) {
	file, _ := w.mirror(t, boltstore.FormMetadata)
	for _, r := range w.types {
		w.compare(t, client, file, r.path(), jsonType+metadataForm)
		if r.Resource.Resource == "limitranges" { // it has no columns of its own
			w.compare(t, client, file, r.path(), jsonType+tableForm)
		}
		if a := ask(t, http.DefaultClient, file+r.path(), jsonType); a.code != http.StatusNotAcceptable {
			t.Errorf("%s: %d %s", r.path(), a.code, a.body)
		}
	}
}

// compare fails unless the server and the file give the same answer, except for the
// version of a list and its companions.
func (w *world) compare(t *testing.T, client *http.Client, file, path, accept string) {
	t.Helper()
	server, ours := w.both(t, client, file, path, accept)
	if server.code != ours.code || server.media != ours.media {
		t.Errorf("%s as %s: %d %s, the server says %d %s", path, accept, ours.code, ours.media, server.code,
			server.media)
	}
	if got, want := plain(t, ours), plain(t, server); got != want {
		t.Errorf("%s as %s :\n%s", path, accept, differences(want, got))
	}
}

// plain returns an answer as indented JSON without the list's own version.
func plain(t *testing.T, a answer) string {
	t.Helper()
	body := a.body
	var o map[string]any
	if err := json.Unmarshal(body, &o); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if m, ok := o["metadata"].(map[string]any); ok && m["name"] == nil {
		delete(m, "resourceVersion")
		if m["continue"] == "" { // as lists of custom resources have it
			delete(m, "continue")
		} else if m["continue"] != nil {
			m["continue"] = "some"
		}
	}
	out, err := json.MarshalIndent(o, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	// The server keeps this annotation of daemon sets in a field, and a table's metadata
	// goes without it. Two descriptions begin in lower case since its release.
	return strings.ReplaceAll(oldGeneration.ReplaceAllString(string(out), ""), `"RoleRef `, `"roleRef `)
}

var oldGeneration = regexp.MustCompile(`"annotations": \{\s*"deprecated.daemonset.template.generation": "1"\s*\},\s*`)

// compareWatch compares the initial events of a watch.
func (w *world) compareWatch(t *testing.T, client *http.Client, file, path string) {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		before := watched(t, client, w.Config().Host+path)
		ours := watched(t, http.DefaultClient, file+path)
		server := watched(t, client, w.Config().Host+path)
		switch {
		case before != server && time.Now().Before(end):
			continue // ages have moved on
		case ours != server:
			t.Errorf("%s :\n%s", path, differences(server, ours))
		}
		return
	}
}

// watched is the events of a watch up to the end of the initial ones.
func watched(t *testing.T, client *http.Client, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", jsonType+tableForm)
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var out strings.Builder
	for in := bufio.NewReader(resp.Body); ; {
		line, err := in.ReadBytes('\n')
		if err != nil {
			t.Fatalf("%s: %v after %s", url, err, out.String())
		}
		var e struct {
			Type   string
			Object map[string]any
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		over := e.Type == "BOOKMARK"
		if over { // its version is each one's own, and its object is empty
			delete(e.Object, "metadata")
			for _, row := range e.Object["rows"].([]any) {
				if o, ok := row.(map[string]any)["object"].(map[string]any); ok {
					delete(o["metadata"].(map[string]any), "resourceVersion")
					delete(o, "spec")
					delete(o, "status")
				}
			}
		}
		text, err := json.MarshalIndent(e, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%s\n", text) // a strings.Builder has no errors
		if over {
			return out.String()
		}
	}
}

// differences are the first lines that differ: the server's, then the file's.
func differences(server, ours string) string {
	a, b := strings.Split(server, "\n"), strings.Split(ours, "\n")
	var out []string
	for i := 0; i < max(len(a), len(b)) && len(out) < 12; i++ {
		of := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return ""
		}
		if of(a) != of(b) {
			out = append(out, fmt.Sprintf("%d:\n  %s\n  %s", i, of(a), of(b)))
		}
	}
	return strings.Join(out, "\n")
}
