package contract

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// probe selects nothing: the answer is the present version.
const probe = "?fieldSelector=metadata.name%3Dnone&limit=1"

var lists = []testCase{
	{"all objects in key order at the present version", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "b")
		f.create(t, f.configMaps(), "c")
		last := f.create(t, f.configMaps(), "a")
		l := f.list(t, f.configMaps())
		names(t, l, "a", "b", "c")
		atLeast(t, "list", l.GetResourceVersion(), last.GetResourceVersion())
		if l.GetKind() != "ConfigMapList" || l.GetAPIVersion() != "v1" {
			t.Errorf("got a %s %s", l.GetAPIVersion(), l.GetKind())
		}
		if kind := l.Items[0].GetKind(); kind != "" {
			t.Errorf("an item of a built-in type names its kind %s", kind)
		}
		if l.GetContinue() != "" || l.GetRemainingItemCount() != nil {
			t.Errorf("a whole list has %v", l.Object["metadata"])
		}
	}},
	{"a list of nothing has a version and no items", func(t *testing.T, f *fixture) {
		last := f.create(t, f.widgets(), "elsewhere")
		a := f.get(t, f.configMaps())
		l := decodeList(t, a.body)
		names(t, l)
		atLeast(t, "list", l.GetResourceVersion(), last.GetResourceVersion())
		if !strings.Contains(string(a.body), `"items":[]`) {
			t.Errorf("got %s, want items to be there and empty", a.body)
		}
	}},
	{"an empty selection tells the present version", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		last := f.create(t, f.configMaps(), "b")
		l := f.list(t, f.configMaps()+probe)
		names(t, l)
		atLeast(t, "probe", l.GetResourceVersion(), last.GetResourceVersion())
		if l.GetContinue() != "" || l.GetRemainingItemCount() != nil {
			t.Errorf("got %v, want neither continue nor remainingItemCount", l.Object["metadata"])
		}
	}},
	{"pages are of one state and count what is left", func(t *testing.T, f *fixture) {
		five(t, f)
		first := f.list(t, f.configMaps()+"?limit=2")
		names(t, first, "a", "b")
		remaining(t, first, 3)
		f.create(t, f.configMaps(), "bb")
		f.delete(t, f.configMaps(), "c")
		second := f.list(t, f.configMaps()+"?limit=2&continue="+first.GetContinue())
		names(t, second, "c", "d")
		remaining(t, second, 1)
		third := f.list(t, f.configMaps()+"?limit=2&continue="+second.GetContinue())
		names(t, third, "e")
		if third.GetContinue() != "" || third.GetRemainingItemCount() != nil {
			t.Errorf("the last page has %v", third.Object["metadata"])
		}
		if rv := first.GetResourceVersion(); second.GetResourceVersion() != rv || third.GetResourceVersion() != rv {
			t.Errorf("pages are of versions %s, %s, %s", rv, second.GetResourceVersion(), third.GetResourceVersion())
		}
	}},
	{"pages of a selection do not count what is left", func(t *testing.T, f *fixture) {
		five(t, f)
		first := f.list(t, f.configMaps()+"?limit=1&labelSelector=odd")
		names(t, first, "a")
		if first.GetContinue() == "" || first.GetRemainingItemCount() != nil {
			t.Errorf("got %v, want continue and no remainingItemCount", first.Object["metadata"])
		}
		names(t, f.list(t, f.configMaps()+"?labelSelector=odd&continue="+first.GetContinue()), "c", "e")
	}},
	{"a page that is not full does not continue", func(t *testing.T, f *fixture) {
		five(t, f)
		l := f.list(t, f.configMaps()+"?limit=5")
		names(t, l, "a", "b", "c", "d", "e")
		if l.GetContinue() != "" {
			t.Error("five of five objects, and yet a next page")
		}
	}},
	{"version 0 ignores the limit", func(t *testing.T, f *fixture) {
		five(t, f)
		f.list(t, f.configMaps()+probe) // makes the cache wait for the newest, which version 0 does not
		l := f.list(t, f.configMaps()+"?limit=2&resourceVersion=0")
		names(t, l, "a", "b", "c", "d", "e")
		if l.GetContinue() != "" {
			t.Error("there is a next page")
		}
	}},
	{"an exact version is served as it was", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		then := f.create(t, f.configMaps(), "b").GetResourceVersion()
		f.delete(t, f.configMaps(), "a")
		f.create(t, f.configMaps(), "c")
		l := f.list(t, f.configMaps()+"?resourceVersionMatch=Exact&resourceVersion="+then)
		names(t, l, "a", "b")
		if l.GetResourceVersion() != then {
			t.Errorf("got version %s, want %s", l.GetResourceVersion(), then)
		}
		l = f.list(t, f.configMaps()+"?limit=2&resourceVersion="+then)
		names(t, l, "a", "b")
		if l.GetResourceVersion() != then {
			t.Errorf("with a limit: got version %s, want %s", l.GetResourceVersion(), then)
		}
	}},
	{"a page of an exact version", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		then := f.create(t, f.configMaps(), "b").GetResourceVersion()
		f.delete(t, f.configMaps(), "a")
		l := f.list(t, f.configMaps()+"?limit=1&resourceVersion="+then)
		names(t, l, "a")
		if l.GetResourceVersion() != then {
			t.Errorf("got version %s, want %s", l.GetResourceVersion(), then)
		}
	}},
	{"a version without a match is a lower bound", func(t *testing.T, f *fixture) {
		then := f.create(t, f.configMaps(), "a").GetResourceVersion()
		last := f.create(t, f.configMaps(), "b").GetResourceVersion()
		l := f.list(t, f.configMaps()+"?resourceVersion="+last)
		names(t, l, "a", "b")
		atLeast(t, "list", l.GetResourceVersion(), last)
		l = f.list(t, f.configMaps()+"?resourceVersionMatch=NotOlderThan&resourceVersion="+then)
		atLeast(t, "list", l.GetResourceVersion(), then)
	}},
	{"a version of another type's change", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		f.list(t, f.configMaps())
		elsewhere := f.create(t, f.widgets(), "w").GetResourceVersion()
		for _, query := range []string{"?resourceVersion=", "?resourceVersionMatch=NotOlderThan&resourceVersion=",
			"?limit=1&resourceVersion="} {
			l := f.list(t, f.configMaps()+query+elsewhere)
			names(t, l, "a")
			atLeast(t, query, l.GetResourceVersion(), elsewhere)
			w := f.watch(t, f.configMaps(), "resourceVersion="+l.GetResourceVersion())
			f.create(t, f.configMaps(), "b")
			w.expect(t, "ADDED b")
			f.delete(t, f.configMaps(), "b")
		}
		if a := f.get(t, f.configMaps()+"/a?resourceVersion="+elsewhere); a.code != http.StatusOK {
			t.Errorf("get: %d %s", a.code, a.body)
		}
	}},
	{"a version in the future times out", func(t *testing.T, f *fixture) {
		future := inFuture(t, f)
		at := "?resourceVersion=" + future
		const match = "&resourceVersionMatch="
		for _, query := range []string{at, at + match + "NotOlderThan", at + match + "Exact", at + "&limit=2",
			"/a" + at} {
			t.Run(query, func(t *testing.T) {
				t.Parallel()
				tooLarge(t, f, query, future)
			})
		}
	}},
	{"the next page of a version in the future times out", func(t *testing.T, f *fixture) {
		future := inFuture(t, f) // a server that was restored is asked for the next page of an earlier list
		token := fmt.Appendf(nil, `{"v":"meta.k8s.io/v1","rv":%s,"start":"a\u0000"}`, future)
		tooLarge(t, f, "?limit=2&continue="+base64.RawURLEncoding.EncodeToString(token), future)
	}},
	{"selectors", func(t *testing.T, f *fixture) {
		five(t, f)
		for query, want := range map[string][]string{
			"labelSelector=odd":  {"a", "c", "e"},
			"labelSelector=!odd": {"b", "d"},
			"labelSelector=" + url.QueryEscape("odd in (a,b)"):     {"a"},
			"fieldSelector=" + url.QueryEscape("metadata.name=b"):  {"b"},
			"fieldSelector=" + url.QueryEscape("metadata.name!=b"): {"a", "c", "d", "e"},
		} {
			names(t, f.list(t, f.configMaps()+"?"+query), want...)
		}
		f.create(t, f.widgets(), "w", "odd=w")
		names(t, f.list(t, f.widgets()+"?labelSelector=odd&fieldSelector=metadata.name%3Dw"), "w")
	}},
	{"one type over all namespaces", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a", "over="+f.namespace)
		l := f.list(t, "/api/v1/configmaps?labelSelector=over%3D"+f.namespace)
		names(t, l, "a")
		if ns := l.Items[0].GetNamespace(); ns != f.namespace {
			t.Errorf("got namespace %q", ns)
		}
	}},
	{"custom resources name their kind", func(t *testing.T, f *fixture) {
		last := f.create(t, f.widgets(), "w")
		l := f.list(t, f.widgets())
		names(t, l, "w")
		atLeast(t, "list", l.GetResourceVersion(), last.GetResourceVersion())
		if l.GetKind() != "WidgetList" || l.Items[0].GetKind() != "Widget" ||
			l.Items[0].GetAPIVersion() != "example.com/v1" {
			t.Errorf("got a %s of %s %s", l.GetKind(), l.Items[0].GetAPIVersion(), l.Items[0].GetKind())
		}
	}},
	{"a next page with a version is refused", func(t *testing.T, f *fixture) {
		five(t, f)
		next := f.list(t, f.configMaps()+"?limit=2").GetContinue()
		st := f.status(t, f.configMaps()+"?resourceVersion=5&continue="+next, 400, metav1.StatusReasonBadRequest)
		matches(t, st.Message, "not allowed when using continue")
	}},
	{"refused", func(t *testing.T, f *fixture) {
		five(t, f)
		for _, tc := range []struct {
			path    string
			code    int
			reason  metav1.StatusReason
			message string
		}{
			{f.configMaps() + "?continue=x", 400, metav1.StatusReasonBadRequest,
				"^invalid continue token: continue key is not valid: illegal base64 data at input byte 0$"},
			{f.configMaps() + "?resourceVersion=5&continue=x", 400, metav1.StatusReasonBadRequest,
				"^invalid continue token: "},
			{f.configMaps() + "?resourceVersion=x", 400, metav1.StatusReasonBadRequest, "x"},
			{f.configMaps() + "?resourceVersionMatch=Exact", 422, metav1.StatusReasonInvalid,
				"resourceVersionMatch is forbidden unless resourceVersion is provided"},
			{f.configMaps() + "?resourceVersionMatch=Exact&resourceVersion=0", 422, metav1.StatusReasonInvalid,
				`"exact" is forbidden for resourceVersion "0"`},
			{f.configMaps() + "?fieldSelector=spec.x%3Dy", 400, metav1.StatusReasonBadRequest, "spec.x"},
			{f.widgets() + "?fieldSelector=spec.x%3Dy", 400, metav1.StatusReasonBadRequest,
				"field label not supported: spec.x"},
			{f.configMaps() + "?labelSelector=a%3D%3D%3Db", 400, metav1.StatusReasonBadRequest, "unable to parse"},
			{f.configMaps() + "/a?resourceVersion=x", 500, "", "^resourceVersion: Invalid value: \"x\": "},
			{f.configMaps() + "/none?resourceVersion=-1", 500, "", "^resourceVersion: Invalid value: \"-1\": "},
			{f.widgets() + "/none?resourceVersion=x", 500, "", "^resourceVersion: Invalid value: \"x\": "},
			{f.configMaps() + "/none", 404, metav1.StatusReasonNotFound, `^configmaps "none" not found$`},
			{f.configMaps() + "/a/status", 404, metav1.StatusReasonNotFound,
				"^the server could not find the requested resource$"},
			{"/api/v1/namespaces/default/status/x", 404, metav1.StatusReasonNotFound,
				"^the server could not find the requested resource$"},
			{"/api/v1/namespaces/%2e%2e/configmaps", 500, "", "^invalid key: "},
			{"/api/v1/gadgets", 404, metav1.StatusReasonNotFound, "^the server could not find the requested resource$"},
		} {
			t.Run(strings.TrimPrefix(tc.path, "/api"), func(t *testing.T) {
				st := f.status(t, tc.path, tc.code, tc.reason)
				matches(t, st.Message, tc.message)
			})
		}
		for _, path := range []string{"/apis//v1/pods", "/apis//v1/configmaps", "/apis//v1",
			"/apis/example.com//widgets", "/api//configmaps"} {
			if a := f.get(t, path); a.code != 404 {
				t.Errorf("%s: got %d %s", path, a.code, a.body)
			}
		}
		if a := f.get(t, "/apis/example.com/v1/gadgets"); a.code != 404 || string(a.body) != "404 page not found\n" {
			t.Errorf("an unknown custom resource: got %d %s", a.code, a.body)
		}
	}},
}

// inFuture is a version that the server has not reached.
func inFuture(t *testing.T, f *fixture) string {
	t.Helper()
	now := version(t, f.create(t, f.configMaps(), "a").GetResourceVersion())
	return strconv.FormatUint(now+1_000_000, 10)
}

// tooLarge expects the answer to a read at a version in the future.
func tooLarge(t *testing.T, f *fixture, query, future string) {
	t.Helper()
	st := f.status(t, f.configMaps()+query, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	matches(t, st.Message, "^Timeout: Too large resource version: "+future+`, current: \d+$`)
	if st.Details == nil || len(st.Details.Causes) != 1 || st.Details.RetryAfterSeconds != 1 {
		t.Fatalf("got details %+v", st.Details)
	}
	c := st.Details.Causes[0]
	if c.Type != metav1.CauseTypeResourceVersionTooLarge || c.Message != "Too large resource version" {
		t.Errorf("got cause %+v", c)
	}
}

// five makes config maps a to e, every other one with the label odd.
func five(t *testing.T, f *fixture) {
	t.Helper()
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		var labels []string
		if i%2 == 0 {
			labels = append(labels, "odd="+name)
		}
		f.create(t, f.configMaps(), name, labels...)
	}
}

func names(t *testing.T, l *unstructured.UnstructuredList, want ...string) {
	t.Helper()
	var got []string
	for _, item := range l.Items {
		got = append(got, item.GetName())
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func remaining(t *testing.T, l *unstructured.UnstructuredList, want int64) {
	t.Helper()
	if n := l.GetRemainingItemCount(); l.GetContinue() == "" || n == nil || *n != want {
		t.Errorf("got %v, want continue and %d remaining", l.Object["metadata"], want)
	}
}

func matches(t *testing.T, got, pattern string) {
	t.Helper()
	if !regexp.MustCompile(pattern).MatchString(got) {
		t.Errorf("got %q, want what matches %q", got, pattern)
	}
}
