package contract

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

var faults = []testCase{
	{"no bookmark is of the last change to the type, whichever namespace that was in", func(t *testing.T, f *fixture) {
		other := newFixture(t, f.server)
		from := f.create(t, f.configMaps(), "a").GetResourceVersion()
		for n, last, now := 0, "", "none"; now != last; n++ { // until nothing else has written
			last = other.create(t, other.configMaps(), "b"+strconv.Itoa(n)).GetResourceVersion()
			now = f.list(t, f.configMaps()+probe).GetResourceVersion()
		}
		s := f.watch(t, f.configMaps(), "allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+from)
		s.expectEnd(t)
		lasted(t, s, 2900*time.Millisecond)
		now := f.later(t, f.configMaps())
		s = f.watch(t, f.configMaps(), "allowWatchBookmarks=true&timeoutSeconds=3&resourceVersion="+from)
		atLeast(t, "bookmark", s.expect(t, "BOOKMARK")[0].Object.GetResourceVersion(), now)
	}},
	{"a restart ends every watch and makes every resume too old", func(t *testing.T, f *fixture) {
		rv := f.create(t, f.configMaps(), "a").GetResourceVersion()
		s := f.watch(t, f.configMaps(), "resourceVersion="+rv)
		restart(t, f)
		s.expectEnd(t)
		expired(t, f.watch(t, f.configMaps(), "resourceVersion="+rv))
		resp := f.send(t.Context(), t, http.MethodGet, f.configMaps()+"?watch=true&resourceVersion="+rv,
			accept(protoOrJSON), nil)
		defer resp.Body.Close()
		e := protoEvent(t, resp.Body)
		if st, _ := e.Object.(*metav1.Status); e.Type != watch.Error || st == nil || st.Code != http.StatusGone {
			t.Errorf("in protobuf: got %s %v", e.Type, e.Object)
		}
	}},
	{"a restart keeps objects, exact lists and continue tokens", func(t *testing.T, f *fixture) {
		five(t, f)
		first := f.list(t, f.configMaps()+"?limit=2")
		f.delete(t, f.configMaps(), "d")
		restart(t, f)
		names(t, f.list(t, f.configMaps()), "a", "b", "c", "e")
		names(t, f.list(t, f.configMaps()+"?resourceVersionMatch=Exact&resourceVersion="+first.GetResourceVersion()),
			"a", "b", "c", "d", "e")
		names(t, f.list(t, f.configMaps()+"?continue="+first.GetContinue()), "c", "d", "e")
	}},
	{"a watch goes on from a list after a restart", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		restart(t, f)
		l := f.list(t, f.configMaps()+probe)
		s := f.watch(t, f.configMaps(), "resourceVersion="+l.GetResourceVersion())
		f.create(t, f.configMaps(), "b")
		s.expect(t, "ADDED b")
	}},
	{"a compaction expires continue tokens and exact versions", func(t *testing.T, f *fixture) {
		five(t, f)
		first := f.list(t, f.configMaps()+"?limit=2")
		f.create(t, f.configMaps(), "bb")
		f.create(t, f.configMaps(), "f")
		if err := f.server.Compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := f.status(t, f.configMaps()+"?resourceVersionMatch=Exact&resourceVersion="+first.GetResourceVersion(),
			http.StatusGone, metav1.StatusReasonExpired)
		matches(t, st.Message, "^The resourceVersion for the provided list is too old.$")
		st = f.status(t, f.configMaps()+"?limit=2&continue="+first.GetContinue(), http.StatusGone,
			metav1.StatusReasonExpired)
		matches(t, st.Message, "^The provided continue parameter is too old to display a consistent list result.")
		rest := f.list(t, f.configMaps()+"?continue="+st.Continue)
		names(t, rest, "bb", "c", "d", "e", "f")
		newer(t, "the inconsistent rest", rest.GetResourceVersion(), first.GetResourceVersion())
	}},
	{"a restored snapshot takes versions back", func(t *testing.T, f *fixture) {
		f.create(t, f.configMaps(), "a")
		restore, err := f.server.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range 20 {
			f.create(t, f.configMaps(), "lost-"+strconv.Itoa(i))
		}
		lost := f.list(t, f.configMaps()+probe).GetResourceVersion()
		s := f.watch(t, f.configMaps(), "resourceVersion="+lost)
		if err := restore(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.expectEnd(t)
		l := f.list(t, f.configMaps())
		names(t, l, "a")
		newer(t, "before the restore", lost, l.GetResourceVersion())
		s = f.watch(t, f.configMaps(), "timeoutSeconds=2&resourceVersion="+lost)
		f.create(t, f.configMaps(), "unseen")
		s.expectEnd(t)
		f.status(t, f.configMaps()+"?resourceVersion="+lost, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
	}},
}

func restart(t *testing.T, f *fixture) {
	t.Helper()
	if err := f.server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}
