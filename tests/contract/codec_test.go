package contract

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	restwatch "k8s.io/client-go/rest/watch"
)

const (
	protoType     = "application/vnd.kubernetes.protobuf"
	protoOrJSON   = protoType + "," + jsonType
	partialSuffix = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partialList   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

var codecs = []testCase{
	{"protobuf where it is asked for and the type has it", func(t *testing.T, f *fixture) {
		five(t, f)
		f.create(t, f.widgets(), "w")
		for _, tc := range []struct{ path, accept, want string }{
			{f.configMaps(), jsonType, jsonType},
			{f.configMaps(), protoType, protoType},
			{f.configMaps(), protoOrJSON, protoType},
			{f.widgets(), protoOrJSON, jsonType},
			{f.configMaps() + "/none", protoType, protoType},
		} {
			a := f.do(t, http.MethodGet, tc.path, accept(tc.accept), nil)
			if got := mediaType(t, a.header); got != tc.want {
				t.Errorf("%s as %s: got %s", tc.path, tc.accept, got)
			}
		}
		a := f.do(t, http.MethodGet, f.widgets(), accept(protoType), nil)
		if a.code != http.StatusNotAcceptable {
			t.Errorf("widgets as protobuf: got %d", a.code)
		}
	}},
	{"protobuf and JSON say the same", func(t *testing.T, f *fixture) {
		five(t, f)
		a := f.do(t, http.MethodGet, f.configMaps()+"?limit=3", accept(protoType), nil)
		obj, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), a.body)
		if err != nil {
			t.Fatal(err)
		}
		got := obj.(*corev1.ConfigMapList)
		want := &corev1.ConfigMapList{}
		rv := "&resourceVersionMatch=Exact&resourceVersion=" + got.ResourceVersion
		if err := json.Unmarshal(f.get(t, f.configMaps()+"?limit=3"+rv).body, want); err != nil {
			t.Fatal(err)
		}
		got.TypeMeta, want.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		equal(t, got, want)
	}},
	{"a watch in protobuf", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		b := f.create(t, f.configMaps(), "b")
		resp := f.send(t.Context(), t, http.MethodGet, f.configMaps()+"?watch=true&resourceVersion="+from,
			accept(protoOrJSON), nil)
		defer resp.Body.Close()
		if got := resp.Header.Get("Content-Type"); got != protoType+";stream=watch" {
			t.Errorf("got content type %s", got)
		}
		e := protoEvent(t, resp.Body)
		cm, _ := e.Object.(*corev1.ConfigMap)
		if e.Type != watch.Added || cm == nil || cm.ResourceVersion != b.GetResourceVersion() || cm.Name != "b" {
			t.Errorf("got %s %v", e.Type, e.Object)
		}
	}},
	{"a list of metadata only", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.configMaps(), f.widgets()} {
			made := f.create(t, path, "a", "x=1")
			a := f.do(t, http.MethodGet, path, accept(jsonType+partialList), nil)
			l := decodeList(t, a.body)
			names(t, l, "a")
			if l.GetKind() != "PartialObjectMetadataList" || l.GetAPIVersion() != "meta.k8s.io/v1" {
				t.Errorf("got a %s %s", l.GetAPIVersion(), l.GetKind())
			}
			atLeast(t, "list", l.GetResourceVersion(), made.GetResourceVersion())
			item := l.Items[0]
			if item.GetKind() != "PartialObjectMetadata" || item.GetUID() != made.GetUID() ||
				item.GetLabels()["x"] != "1" || item.Object["spec"] != nil {
				t.Errorf("got item %v", item.Object)
			}
			a = f.do(t, http.MethodGet, path, accept(protoType+partialList), nil)
			if got := mediaType(t, a.header); got != protoType {
				t.Fatalf("%s: got %s %s", path, got, a.body)
			}
			obj, _, err := partialCodecs(t).UniversalDeserializer().Decode(a.body, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			pl := obj.(*metav1.PartialObjectMetadataList)
			if len(pl.Items) != 1 || pl.Items[0].UID != made.GetUID() {
				t.Errorf("got %v", pl)
			}
		}
	}},
	{"pages of metadata only", func(t *testing.T, f *fixture) {
		five(t, f)
		a := f.do(t, http.MethodGet, f.configMaps()+"?limit=2", accept(jsonType+partialList), nil)
		first := decodeList(t, a.body)
		names(t, first, "a", "b")
		remaining(t, first, 3)
		a = f.do(t, http.MethodGet, f.configMaps()+"?continue="+first.GetContinue(), accept(jsonType+partialList), nil)
		names(t, decodeList(t, a.body), "c", "d", "e")
	}},
	{"a watch of metadata only", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.configMaps(), f.widgets()} {
			from := f.create(t, path, "a").GetResourceVersion()
			f.create(t, path, "b")
			f.later(t, path)
			s := f.watchAs(t, path, "allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+from,
				jsonType+partialSuffix)
			got := s.expect(t, "ADDED b", "BOOKMARK")
			for _, e := range got {
				if e.Object.GetKind() != "PartialObjectMetadata" || e.Object.GetAPIVersion() != "meta.k8s.io/v1" ||
					e.Object.Object["spec"] != nil {
					t.Errorf("%s: got %s %v", path, e.Type, e.Object.Object)
				}
			}
			atLeast(t, "bookmark", got[1].Object.GetResourceVersion(), got[0].Object.GetResourceVersion())
		}
	}},
	{"a timeout that is none", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.configMaps(), f.widgets()} {
			f.create(t, path, "a")
			for _, of := range []string{path + "?", path + "/a?", path + "?watch=false&"} {
				for timeout, want := range map[string]int{"abc": 400, "1": 400, "1s": 200, "-1s": 200, "0s": 200,
					"": 200} {
					if a := f.get(t, of+"timeout="+timeout); a.code != want || want == 400 &&
						!strings.Contains(string(a.body), "invalid timeout specified in the request URL - time: ") {
						t.Errorf("%stimeout=%s: %d %s", of, timeout, a.code, a.body)
					}
				}
			}
			if a := f.get(t, path+"?watch=true&timeoutSeconds=1&timeout=abc"); a.code != 200 {
				t.Errorf("a watch of %s: %d %s", path, a.code, a.body)
			}
		}
	}},
	{"the largest weight wins", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.configMaps(), f.widgets()} {
			f.create(t, path, "a")
			for types, want := range map[string]string{
				"application/json;as=Table;v=v1;g=meta.k8s.io;q=0.1, */*;q=0.2": jsonType,
				"text/html, */*;q=0.1": jsonType,
			} {
				if a := f.do(t, http.MethodGet, path, accept(types), nil); a.code != http.StatusOK ||
					mediaType(t, a.header) != want {
					t.Errorf("%s: got %d %v", types, a.code, a.header)
				}
			}
			if a := f.do(t, http.MethodGet, path+"/a",
				accept("application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io, application/json"),
				nil); a.code < 400 {
				t.Errorf("one object as a list: got %d %s", a.code, a.body)
			}
		}
	}},
	{"application/* is for custom resources", func(t *testing.T, f *fixture) {
		for path, want := range map[string]int{f.configMaps(): http.StatusNotAcceptable, f.widgets(): http.StatusOK} {
			f.create(t, path, "a")
			for _, of := range []string{path, path + "/a", path + "?watch=true&timeoutSeconds=1"} {
				if a := f.do(t, http.MethodGet, of, accept("application/*"), nil); a.code != want {
					t.Errorf("%s: got %d %s", of, a.code, a.body)
				}
				if a := f.do(t, http.MethodGet, of, accept("application/*;q=0.1, "+jsonType),
					nil); a.code != http.StatusOK || mediaType(t, a.header) != jsonType {
					t.Errorf("%s: got %d %v", of, a.code, a.header)
				}
			}
		}
	}},
	{"other methods read nothing", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		for _, method := range []string{http.MethodHead, http.MethodOptions, http.MethodTrace, "FOO"} {
			for _, path := range []string{f.configMaps(), f.configMaps() + "/a", "/api", "/api/v1", "/version"} {
				if a := f.do(t, method, path, accept(jsonType), nil); a.code != http.StatusMethodNotAllowed {
					t.Errorf("%s %s: got %d %s", method, path, a.code, a.body)
				}
			}
		}
	}},
	{"HEAD asks for the groups", func(t *testing.T, f *fixture) {
		for _, path := range []string{"/apis", "/apis/example.com"} {
			if a := f.do(t, http.MethodHead, path, accept(jsonType), nil); a.code != http.StatusOK || len(a.body) > 0 {
				t.Errorf("%s: got %d %s", path, a.code, a.body)
			}
		}
	}},
	{"a document of all groups has an ETag, and other documents have none", func(t *testing.T, f *fixture) {
		for _, path := range []string{"/api", "/apis"} {
			all := accept("application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
			a := f.do(t, http.MethodGet, path, all, nil)
			if _, ok := f.server.(simulator); !ok {
				tag := a.header.Get("ETag")
				if a.code != 200 || len(tag) < 10 || tag[0] != '"' || a.header.Get("Vary") != "Accept" {
					t.Errorf("%s: %d, %v", path, a.code, a.header)
				}
				for given, code := range map[string]int{tag: 304, `"other"`: 200, strings.Trim(tag, `"`): 200,
					"W/" + tag: 200, tag + ", " + tag: 200, "*": 200} {
					all.Set("If-None-Match", given)
					if a := f.do(t, http.MethodGet, path, all, nil); a.code != code ||
						(len(a.body) == 0) != (code == 304) || a.header.Get("ETag") != tag ||
						a.header.Get("Vary") != "Accept" {
						t.Errorf("%s, If-None-Match %s: %d, %v, %d bytes", path, given, a.code, a.header, len(a.body))
					}
				}
			}
			if a := f.do(t, http.MethodGet, path, accept(jsonType), nil); a.code != 200 || a.header.Get("ETag") != "" {
				t.Errorf("%s in JSON: %d, %v", path, a.code, a.header)
			}
		}
	}},
	{"CBOR is not served", func(t *testing.T, f *fixture) {
		const cborType = "application/cbor"
		for _, path := range []string{f.configMaps(), f.widgets()} {
			f.create(t, path, "a")
			for _, of := range []string{path, path + "/a", path + "?watch=true&timeoutSeconds=1"} {
				if a := f.do(t, http.MethodGet, of, accept(cborType), nil); a.code != http.StatusNotAcceptable {
					t.Errorf("%s: got %d %s", of, a.code, a.body)
				}
				if a := f.do(t, http.MethodGet, of, accept(cborType+","+jsonType), nil); a.code != http.StatusOK ||
					mediaType(t, a.header) != jsonType {
					t.Errorf("%s: got %d %v", of, a.code, a.header)
				}
			}
		}
	}},
	{"gzip above 128 KB", func(t *testing.T, f *fixture) {
		put := func(name string) {
			f.write(t, http.MethodPost, f.configMaps(), map[string]any{
				"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name},
				"data": map[string]any{"fill": strings.Repeat("x", 100<<10)},
			})
		}
		list := func(encoding string) *answer {
			h := accept(jsonType)
			if encoding != "" {
				h.Set("Accept-Encoding", encoding)
			}
			return f.do(t, http.MethodGet, f.configMaps(), h, nil)
		}
		put("a")
		if got := list("gzip").header.Get("Content-Encoding"); got != "" {
			t.Errorf("100 KB came as %s", got)
		}
		put("b")
		if got := list("").header.Get("Content-Encoding"); got != "" {
			t.Errorf("%s without having been asked for", got)
		}
		a := list("gzip")
		if got := a.header.Get("Content-Encoding"); got != "gzip" {
			t.Fatalf("200 KB came as %q", got)
		}
		zr, err := gzip.NewReader(bytes.NewReader(a.body))
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(zr)
		if err != nil {
			t.Fatal(err)
		}
		names(t, decodeList(t, body), "a", "b")
		h := accept(jsonType)
		h.Set("Accept-Encoding", "gzip")
		resp := f.send(t.Context(), t, http.MethodGet, f.configMaps()+"?watch=true", h, nil)
		resp.Body.Close()
		if got := resp.Header.Get("Content-Encoding"); got != "" {
			t.Errorf("a watch came as %s", got)
		}
	}},
	{"numbers of a custom resource", func(t *testing.T, f *fixture) {
		f.create(t, f.widgets(), "a")
		body := string(f.get(t, f.widgets()).body)
		if !strings.Contains(body, `"spec":{"ratio":0.5,"size":3}`) {
			t.Errorf("got %s", body)
		}
	}},
}

func mediaType(t *testing.T, h http.Header) string {
	t.Helper()
	got, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// protoEvent reads one event of a watch in protobuf.
func protoEvent(t *testing.T, body io.ReadCloser) watch.Event {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), protoType)
	if !ok {
		t.Fatal("client-go has no protobuf")
	}
	frames := streaming.NewDecoder(info.StreamSerializer.Framer.NewFrameReader(body), info.StreamSerializer.Serializer)
	kind, obj, err := restwatch.NewDecoder(frames, scheme.Codecs.UniversalDeserializer()).Decode()
	if err != nil {
		t.Fatal(err)
	}
	return watch.Event{Type: kind, Object: obj}
}

// partialCodecs decodes the types for an object's metadata.
func partialCodecs(t *testing.T) serializer.CodecFactory {
	t.Helper()
	s := runtime.NewScheme()
	if err := metav1.AddMetaToScheme(s); err != nil {
		t.Fatal(err)
	}
	return serializer.NewCodecFactory(s)
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	g, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	w, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(g, w) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

// The signs by which a relist sees that the served form has changed.
func init() {
	codecs = append(codecs, testCase{"the definition of a custom resource", func(t *testing.T, f *fixture) {
		const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
		partial := accept("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json")
		a := f.do(t, http.MethodGet, path+"widgets.example.com", partial, nil)
		crd := unstructured.Unstructured{Object: decode(t, a.body)}
		if a.code != http.StatusOK || crd.GetKind() != "PartialObjectMetadata" || crd.GetUID() == "" ||
			crd.GetGeneration() < 1 {
			t.Errorf("%d %s", a.code, a.body)
		}
		t.Logf("%d bytes", len(a.body))
		if a := f.do(t, http.MethodGet, path+"nope.example.com", partial, nil); a.code != http.StatusNotFound {
			t.Errorf("%d %s", a.code, a.body)
		}
	}})
	codecs = append(codecs, testCase{"the hash of a schema, under another one", func(t *testing.T, f *fixture) {
		rt, err := rest.TransportFor(f.server.Config())
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]int{"/openapi/v3/api/v1": 301, "/openapi/v3/apis/example.com/v1": 301,
			"/openapi/v3/apis/nope.example.com/v1": 404} {
			// A custom resource's schema is published some time after it is served.
			deadline := time.Now().Add(time.Minute)
			for {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
					f.server.Config().Host+path+"?hash=0", nil)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := rt.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				tag := strings.Trim(resp.Header.Get("ETag"), `"`)
				ok := resp.StatusCode == want &&
					(want == 404 || tag != "" && len(body) == 0 && resp.Header.Get("Location") == path+"?hash="+tag)
				if ok {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("%s: %s, tag %q, %d bytes, %s", path, resp.Status, tag, len(body),
						resp.Header.Get("Location"))
				}
				// between two looks: the server gives no signal when it publishes a schema
				time.Sleep(100 * time.Millisecond) // between two looks, see above
			}
		}
	}})
}
