package kubesim

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/kubewake/kubewake/internal/podgen"
)

func names(list *corev1.ConfigMapList) string {
	var out []string
	for _, cm := range list.Items {
		out = append(out, cm.Name)
	}
	return strings.Join(out, " ")
}

func TestPagesAreOneSnapshot(t *testing.T) {
	for name, contentType := range encodings {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{})
			objs := seed(t, s, 5) // versions 5 to 9
			cms := clientset(t, s, contentType).CoreV1().ConfigMaps("default")
			page1 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 2}))(t)
			check(t, s.Delete(objs[3]))
			check(t, s.Create(configMap("c0015")))
			page2 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page1.Continue}))(t)
			page3 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page2.Continue}))(t)
			for i, p := range []struct {
				got             *corev1.ConfigMapList
				names           string
				left            int64
				resourceVersion string
			}{{page1, "c000 c001", 3, "9"}, {page2, "c002 c003", 1, "9"}, {page3, "c004", 0, "9"}} {
				var left int64
				if p.got.RemainingItemCount != nil {
					left = *p.got.RemainingItemCount
				}
				if names(p.got) != p.names || left != p.left || p.got.ResourceVersion != p.resourceVersion {
					t.Errorf("page %d: %s, %d left at %s", i+1, names(p.got), left, p.got.ResourceVersion)
				}
			}
			if page3.Continue != "" {
				t.Error("the last page continues")
			}
		})
	}
}

// TestLargestPage: pages respect the server's bound and are still one snapshot. Lists
// that are not paged stay whole.
func TestLargestPage(t *testing.T) {
	s := start(t, Options{LargestPage: 2})
	objs := seed(t, s, 5)
	cms := clientset(t, s, "").CoreV1().ConfigMaps("default")
	page1 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 4}))(t)
	check(t, s.Delete(objs[3]))
	page2 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 4, Continue: page1.Continue}))(t)
	page3 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page2.Continue}))(t)
	if got := names(page1) + ", " + names(page2) + ", " + names(page3); got != "c000 c001, c002 c003, c004" ||
		page3.Continue != "" {
		t.Errorf("pages %s", got)
	}
	if n := page1.RemainingItemCount; n == nil || *n != 3 {
		t.Errorf("%v left", n)
	}
	for _, o := range []metav1.ListOptions{{}, {Limit: 3, ResourceVersion: "0"}} {
		if got := names(must(cms.List(t.Context(), o))(t)); got != "c000 c001 c002 c004" {
			t.Errorf("%+v: %s", o, got)
		}
	}
}

func TestExpiredContinueOffersInconsistentRest(t *testing.T) {
	s := start(t, Options{})
	seed(t, s, 4)
	cms := clientset(t, s, "").CoreV1().ConfigMaps("default")
	page1 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 2}))(t)
	check(t, s.Create(configMap("c0015")))
	check(t, s.Create(configMap("c0025")))
	s.Compact()
	_, err := cms.List(t.Context(), metav1.ListOptions{Limit: 1, Continue: page1.Continue})
	st := statusOf(t, err)
	if st.Code != 410 || st.Reason != metav1.StatusReasonExpired || st.Message != messageInconsistent ||
		st.Continue == "" {
		t.Fatalf("got %+v", st)
	}
	page2 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: st.Continue}))(t)
	if names(page2) != "c0015 c002" || page2.ResourceVersion != "10" {
		t.Errorf("the rest starts with %s at %s", names(page2), page2.ResourceVersion)
	}
	page3 := must(cms.List(t.Context(), metav1.ListOptions{Limit: 2, Continue: page2.Continue}))(t)
	if names(page3) != "c0025 c003" {
		t.Errorf("and goes on with %s", names(page3))
	}
	_, err = cms.List(t.Context(),
		metav1.ListOptions{ResourceVersion: "6", ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if st := statusOf(t, err); st.Code != 410 || st.Message != messageExpired {
		t.Errorf("exact list of a compacted version: %+v", st)
	}
}

func TestListVersions(t *testing.T) {
	s := start(t, Options{})
	seed(t, s, 3) // versions 5 to 7
	check(t, s.Delete(configMap("c000")))
	for _, tc := range []struct{ query, want string }{
		{"", "8: c001 c002"},
		{"resourceVersion=0", "8: c001 c002"},
		{"resourceVersion=0&limit=1", "8: c001 c002"},
		{"resourceVersion=6", "8: c001 c002"},
		{"resourceVersion=6&limit=1", "6: c000 +1"},
		{"resourceVersion=6&limit=1&resourceVersionMatch=NotOlderThan", "8: c001 +1"},
		{"resourceVersion=6&resourceVersionMatch=Exact", "6: c000 c001"},
		{"limit=1&fieldSelector=metadata.name%3Dnone", "8:"},
		{"limit=1&labelSelector=!none", "8: c001 +?"},
		{"fieldSelector=metadata.name%3Dc002,metadata.namespace%3Ddefault", "8: c002"},
		{"resourceVersion=9", "504 Timeout: Timeout: Too large resource version: 9, current: 8"},
		{"resourceVersion=9&resourceVersionMatch=Exact",
			"504 Timeout: Timeout: Too large resource version: 9, current: 8"},
		{"resourceVersion=x", `400 BadRequest: invalid resource version: resourceVersion: Invalid value: "x": strconv.ParseUint: parsing "x": invalid syntax`},
		{"resourceVersionMatch=Exact",
			`422 Invalid: ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`},
		{"resourceVersion=0&resourceVersionMatch=Exact",
			`422 Invalid: ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"`},
		{"sendInitialEvents=true", `422 Invalid: ListOptions.meta.k8s.io "" is invalid: sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list`},
		{"labelSelector=a%3Db%3Dc", "400 BadRequest: found '=', expected: ',' or 'end of string'"},
		{"fieldSelector=foo%3Dbar", `400 BadRequest: "foo" is not a known field selector: only "metadata.name", "metadata.namespace"`},
		{"continue=abc", "400 BadRequest: invalid continue token: continue key is not valid: invalid character 'i' " +
			"looking for beginning of value"},
	} {
		t.Run(tc.query, func(t *testing.T) {
			_, body := get(t, s, "/api/v1/namespaces/default/configmaps?"+tc.query)
			var st metav1.Status
			var list corev1.ConfigMapList
			check(t, json.Unmarshal(body, &st))
			check(t, json.Unmarshal(body, &list))
			got := strings.TrimSpace(list.ResourceVersion + ": " + names(&list))
			if st.Code != 0 {
				got = fmt.Sprintf("%d %s: %s", st.Code, st.Reason, st.Message)
			} else if list.Continue != "" {
				got += " +?"
				if n := list.RemainingItemCount; n != nil {
					got = got[:len(got)-1] + fmt.Sprint(*n)
				}
			}
			if got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	err := restClient(t, s.RESTConfig()).Get().Resource("pods").Param("resourceVersion",
		"99").MaxRetries(0).Do(t.Context()).Error()
	st := statusOf(t, err)
	if len(st.Details.Causes) != 1 || st.Details.Causes[0].Type != metav1.CauseTypeResourceVersionTooLarge ||
		st.Details.RetryAfterSeconds != 1 {
		t.Errorf("too large: %+v", st.Details)
	}
}

func TestListOrderAndScope(t *testing.T) {
	s := start(t, Options{})
	g := podgen.New(1)
	var want []string
	for i := range 200 {
		p := g.Pod(i)
		check(t, s.Create(p))
		want = append(want, p.Namespace+"/"+p.Name)
	}
	slices.Sort(want)
	c := clientset(t, s, encodings["protobuf"]).CoreV1()
	var got []string
	byNode, opts := map[string]int{}, metav1.ListOptions{Limit: 33}
	for {
		list := must(c.Pods("").List(t.Context(), opts))(t)
		for _, p := range list.Items {
			got = append(got, p.Namespace+"/"+p.Name)
			byNode[p.Spec.NodeName]++
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			break
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %d pods, or not in key order", len(got))
	}
	for node, n := range byNode {
		list := must(c.Pods("").List(t.Context(),
			metav1.ListOptions{FieldSelector: "spec.nodeName=" + node + ",status.phase=Running"}))(t)
		if len(list.Items) != n {
			t.Errorf("%d pods on %s, want %d", len(list.Items), node, n)
		}
	}
	ns := must(c.Pods("billing").List(t.Context(), metav1.ListOptions{}))(t)
	for _, p := range ns.Items {
		if p.Namespace != "billing" {
			t.Errorf("%s/%s in the list of billing", p.Namespace, p.Name)
		}
	}
	if len(ns.Items) == 0 {
		t.Error("no pod in billing")
	}
}

func TestEncodingsAgree(t *testing.T) {
	s := start(t, Options{})
	g := podgen.New(1)
	for i := range 60 {
		check(t, s.Create(g.Pod(i)))
	}
	lists := map[string]*corev1.PodList{}
	for _, accept := range encodings {
		for _, enc := range []string{"identity", "gzip"} {
			resp, body := get(t, s, "/api/v1/pods", "Accept", accept, "Accept-Encoding", enc)
			if got := resp.Header.Get("Content-Encoding"); (got == "gzip") != (enc == "gzip") {
				t.Fatalf("%s, %s: Content-Encoding %q", accept, enc, got)
			}
			if r := s.Requests(); r[len(r)-1].BodyBytes != int64(len(body)) || r[len(r)-1].Items != 60 {
				t.Errorf("recorded %+v for %d bytes", r[len(r)-1], len(body))
			}
			if enc == "gzip" {
				body = must(io.ReadAll(must(gzip.NewReader(strings.NewReader(string(body))))(t)))(t)
			}
			list := &corev1.PodList{}
			if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, list); err != nil {
				t.Fatal(err)
			}
			list.TypeMeta = metav1.TypeMeta{}
			lists[accept+enc] = list
		}
	}
	want := lists["application/jsonidentity"]
	for name, got := range lists {
		if !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("%s differs from plain JSON", name)
		}
	}
	resp, _ := get(t, s, "/api/v1/pods?limit=2", "Accept-Encoding", "gzip")
	if resp.Header.Get("Content-Encoding") != "" {
		t.Error("a small body is compressed")
	}
}

func TestDeleteCollection(t *testing.T) {
	s := start(t, Options{})
	seed(t, s, 2)
	check(t, s.Create(configMap("x", "keep", "yes")))
	cms := clientset(t, s, "").CoreV1().ConfigMaps("default")
	check(t, cms.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "keep!=yes"}))
	if list := must(cms.List(t.Context(), metav1.ListOptions{}))(t); names(list) != "x" {
		t.Errorf("left: %s", names(list))
	}
}

func TestHandlerWithoutListener(t *testing.T) {
	s := New(Options{})
	defer s.Close()
	w := &discardResponse{header: http.Header{}}
	s.ServeHTTP(w, must(http.NewRequestWithContext(t.Context(), http.MethodGet, "/api/v1/namespaces", nil))(t))
	if r := s.Requests(); w.code != 200 || len(r) != 1 || r[0].Items != 4 || r[0].Status != 200 || r[0].Open {
		t.Errorf("code %d, records %+v", w.code, r)
	}
}

type discardResponse struct {
	header http.Header
	code   int
}

func (w *discardResponse) Header() http.Header         { return w.header }
func (w *discardResponse) WriteHeader(code int)        { w.code = code }
func (w *discardResponse) Write(b []byte) (int, error) { return len(b), nil }
