package contract

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var watches = []testCase{
	{"a version replays all that happened since", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.configMaps(), f.widgets()} {
			from := f.create(t, path, "a").GetResourceVersion()
			b := f.create(t, path, "b")
			a := f.update(t, path, "a", "x=1")
			f.delete(t, path, "b")
			s := f.watch(t, path, "resourceVersion="+from)
			got := s.expect(t, "ADDED b", "MODIFIED a", "DELETED b")
			if got[0].Object.GetResourceVersion() != b.GetResourceVersion() ||
				got[1].Object.GetResourceVersion() != a.GetResourceVersion() {
				t.Errorf("%s: the events carry other versions than the writes", path)
			}
			if got[0].Object.GetKind() == "" || got[0].Object.GetAPIVersion() == "" {
				t.Errorf("%s: the object does not name its kind", path)
			}
			gone := got[2].Object
			newer(t, "deleted object", gone.GetResourceVersion(), a.GetResourceVersion())
			if gone.GetUID() != b.GetUID() {
				t.Errorf("%s: deleted uid %q, want %q", path, gone.GetUID(), b.GetUID())
			}
			f.create(t, path, "c")
			s.expect(t, "ADDED c")
		}
	}},
	{"a write that changes nothing is no event", func(t *testing.T, f *fixture) {
		a := f.create(t, f.configMaps(), "a", "x=1")
		if again := f.update(t, f.configMaps(), "a", "x=1"); again.GetResourceVersion() != a.GetResourceVersion() {
			t.Errorf("version %s became %s", a.GetResourceVersion(), again.GetResourceVersion())
		}
		s := f.watch(t, f.configMaps(), "resourceVersion="+a.GetResourceVersion())
		f.create(t, f.configMaps(), "b")
		s.expect(t, "ADDED b")
	}},
	{"objects enter and leave a selection", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a", "in=1")
		s := f.watch(t, f.configMaps(), "labelSelector=in&resourceVersion="+from.GetResourceVersion())
		f.create(t, f.configMaps(), "b")
		out := f.update(t, f.configMaps(), "a")
		f.update(t, f.configMaps(), "a", "in=2")
		f.update(t, f.configMaps(), "a", "in=3")
		f.update(t, f.configMaps(), "b", "in=1")
		f.delete(t, f.configMaps(), "a")
		got := s.expect(t, "DELETED a", "ADDED a", "MODIFIED a", "ADDED b", "DELETED a")
		left := got[0].Object
		if left.GetResourceVersion() != out.GetResourceVersion() || left.GetLabels()["in"] != "1" {
			t.Errorf("left at version %s with labels %v, want the version that left, %s, and the labels before it",
				left.GetResourceVersion(), left.GetLabels(), out.GetResourceVersion())
		}
	}},
	{"a single name", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		s := f.watch(t, f.configMaps(), "fieldSelector=metadata.name%3Db&resourceVersion="+from)
		f.create(t, f.configMaps(), "c")
		f.create(t, f.configMaps(), "b")
		s.expect(t, "ADDED b")
	}},
	{"no version and version 0 begin with what is there", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		f.create(t, f.configMaps(), "b")
		f.list(t, f.configMaps()) // brings the server's memory up to date
		for _, query := range []string{"timeoutSeconds=1", "resourceVersion=0&timeoutSeconds=1"} {
			s := f.watch(t, f.configMaps(), query)
			got := s.expect(t, "ADDED a", "ADDED b")
			s.expectEnd(t)
			if rv := got[0].Object.GetResourceVersion(); version(t, rv) == 0 {
				t.Errorf("%s: version %s", query, rv)
			}
		}
	}},
	{"a timeout ends the stream without a word", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		s := f.watch(t, f.configMaps(), "timeoutSeconds=1&resourceVersion="+from)
		s.expectEnd(t)
		lasted(t, s, 900*time.Millisecond)
	}},
	{"a timeout that has passed ends the stream at once", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		f.watch(t, f.configMaps(), "timeoutSeconds=-1&resourceVersion="+from).expectEnd(t)
	}},
	{"a bookmark comes before a timeout of 3 s", func(t *testing.T, f *fixture) {
		for _, path := range []string{f.configMaps(), f.widgets()} {
			t.Run(path, func(t *testing.T) {
				t.Parallel()
				from := f.create(t, path, "a").GetResourceVersion()
				f.create(t, path, "b")
				now := f.later(t, path)
				var s *stream
				for end := time.Now().Add(time.Minute); ; { // on a busy machine the bookmark may be due too soon
					s = f.watch(t, path, "allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+from)
					s.expect(t, "ADDED b")
					f.later(t, path) // newer than what other cases wrote before the watch began
					if time.Since(s.sent) < time.Second || time.Now().After(end) {
						break
					}
				}
				mark := s.expect(t, "BOOKMARK")[0].Object
				atLeast(t, "bookmark", mark.GetResourceVersion(), now)
				if mark.GetKind() == "" || mark.GetAPIVersion() == "" || len(mark.GetAnnotations()) != 0 {
					t.Errorf("got bookmark %v", mark.Object)
				}
				// A second one may follow.
				for e, err := s.next(t); err == nil; e, err = s.next(t) {
					if e.Type != "BOOKMARK" {
						t.Errorf("got %s %s", e.Type, e.name())
					}
				}
			})
		}
	}},
	{"no bookmark before a timeout of 2 s", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		f.create(t, f.configMaps(), "b")
		f.later(t, f.configMaps())
		s := f.watch(t, f.configMaps(), "allowWatchBookmarks=true&timeoutSeconds=2&resourceVersion="+from)
		s.expect(t, "ADDED b")
		s.expectEnd(t)
	}},
	{"no bookmark unless asked for", func(t *testing.T, f *fixture) {
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		f.create(t, f.configMaps(), "b")
		f.later(t, f.configMaps())
		s := f.watch(t, f.configMaps(), "timeoutSeconds=3&resourceVersion="+from)
		s.expect(t, "ADDED b")
		s.expectEnd(t)
	}},
	{"initial events end with a bookmark", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "b")
		last := f.create(t, f.configMaps(), "a")
		const asked = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan" // without a version it is so anyway
		for _, query := range []string{asked, asked + "&resourceVersion=0",
			asked + "&resourceVersion=" + last.GetResourceVersion(), "", "&resourceVersion=0"} {
			s := f.watch(t, f.configMaps(), "allowWatchBookmarks=true"+query)
			mark := s.expect(t, "ADDED a", "ADDED b", "BOOKMARK")[2].Object
			if !strings.HasSuffix(query, "=0") {
				atLeast(t, "bookmark", mark.GetResourceVersion(), last.GetResourceVersion())
			}
			if mark.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true" || len(mark.GetAnnotations()) != 1 {
				t.Errorf("got bookmark %v", mark.Object)
			}
		}
	}},
	{"events follow the initial ones", func(t *testing.T, f *fixture) {
		f.create(t, f.widgets(), "a")
		s := f.watch(t, f.widgets(), "sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan")
		mark := s.expect(t, "ADDED a", "BOOKMARK")[1].Object
		if mark.GetKind() != "Widget" || mark.GetAPIVersion() != "example.com/v1" {
			t.Errorf("got bookmark %v", mark.Object)
		}
		f.delete(t, f.widgets(), "a")
		e, err := s.next(t)
		for err == nil && e.Type == "BOOKMARK" { // where the delete takes long
			e, err = s.next(t)
		}
		if err != nil || e.Type != "DELETED" || e.name() != "a" {
			t.Fatalf("got %s %s, %v", e.Type, e.name(), err)
		}
		gone := e.Object
		newer(t, "deleted object", gone.GetResourceVersion(), mark.GetResourceVersion())
	}},
	{"a version in the future is silent until the timeout", func(t *testing.T, f *fixture) {
		now := version(t, f.create(t, f.configMaps(), "a").GetResourceVersion())
		future := strconv.FormatUint(now+1_000_000, 10)
		s := f.watch(t, f.configMaps(), "allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+future)
		f.create(t, f.configMaps(), "b")
		s.expectEnd(t)
		lasted(t, s, 2500*time.Millisecond)
	}},
	{"refused", func(t *testing.T, f *fixture) {
		for _, tc := range []struct {
			query   string
			code    int
			reason  metav1.StatusReason
			message string
		}{
			{"sendInitialEvents=true&allowWatchBookmarks=true", 422, metav1.StatusReasonInvalid,
				"sendInitialEvents is forbidden|resourceVersionMatch"},
			{"resourceVersionMatch=NotOlderThan&resourceVersion=5", 422, metav1.StatusReasonInvalid,
				"resourceVersionMatch is forbidden"},
			{"continue=x&timeoutSeconds=1", 422, metav1.StatusReasonInvalid,
				"resourceVersionMatch is forbidden when continue is provided"},
			{"resourceVersion=x", 500, "", "x"},
		} {
			t.Run(tc.query, func(t *testing.T) {
				st := f.status(t, f.configMaps()+"?watch=true&"+tc.query, tc.code, tc.reason)
				matches(t, st.Message, tc.message)
			})
		}
	}},
}

// later takes the server past the newest object below path and returns the
// version that an empty selection of path has then.
func (f *fixture) later(t *testing.T, path string) string {
	t.Helper()
	f.write(t, http.MethodPost, "/api/v1/namespaces", map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"generateName": f.namespace + "-"},
	})
	return f.list(t, path+probe).GetResourceVersion()
}

// lasted fails unless the stream has been open for least, or if it has been for
// very much longer. A busy client notices late that it is open.
func lasted(t *testing.T, s *stream, least time.Duration) {
	t.Helper()
	if asked, open := time.Since(s.sent), time.Since(s.opened); asked < least || open > least+10*time.Second {
		t.Errorf("the stream ended %v after it was asked for and was open for %v, want about %v", asked, open, least)
	}
}

// expired expects the answer to a watch from a version that is too old: not an
// HTTP status but an ERROR event, and then the end.
func expired(t *testing.T, s *stream) {
	t.Helper()
	e, err := s.next(t)
	if err != nil {
		t.Fatal(err)
	}
	obj := e.Object.Object
	if e.Type != "ERROR" || obj["kind"] != "Status" || obj["apiVersion"] != "v1" ||
		obj["status"] != metav1.StatusFailure ||
		obj["code"] != int64(http.StatusGone) || obj["reason"] != string(metav1.StatusReasonExpired) {
		t.Fatalf("got %s %v, want ERROR with a status 410 Expired", e.Type, obj)
	}
	message, _ := obj["message"].(string)
	matches(t, message, `^too old resource version: \d+ \(\d+\)$`)
	s.expectEnd(t)
}
