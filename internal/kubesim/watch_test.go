package kubesim

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/internal/podgen"
)

const (
	cmPath = "/api/v1/namespaces/default/configmaps?watch=1"
	sie    = "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
)

func TestWatchStart(t *testing.T) {
	for _, tc := range []struct {
		query string
		want  []string
	}{
		{"", []string{"ADDED c001 6", "ADDED c002 7", "ADDED new 9"}},
		{"&resourceVersion=0", []string{"ADDED c001 6", "ADDED c002 7", "ADDED new 9"}},
		{"&resourceVersion=5", []string{"ADDED c001 6", "ADDED c002 7", "DELETED c000 8", "ADDED new 9"}},
		{"&resourceVersion=7", []string{"DELETED c000 8", "ADDED new 9"}},
		{"&resourceVersion=8", []string{"ADDED new 9"}},
		{"&resourceVersion=8&fieldSelector=metadata.name%3Dnew", []string{"ADDED new 9"}},
		{sie, []string{"ADDED c001 6", "ADDED c002 7", "BOOKMARK 8 end", "ADDED new 9"}},
		{sie + "&resourceVersion=5", []string{"ADDED c001 6", "ADDED c002 7", "BOOKMARK 8 end", "ADDED new 9"}},
		{sie + "&fieldSelector=metadata.name%3Dnone", []string{"BOOKMARK 8 end"}},
		{sie + "&resourceVersion=99", []string{"ERROR 504 Timeout: Timeout: Too large resource version: 99, " +
			"current: 8", "EOF"}},
		{"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
			[]string{"ADDED c001 6", "ADDED c002 7", "ADDED new 9"}},
		{"&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", []string{"ADDED new 9"}},
	} {
		t.Run(tc.query, func(t *testing.T) {
			s := start(t, Options{})
			seed(t, s, 3) // versions 5 to 7
			check(t, s.Delete(configMap("c000")))
			w := watchLines(t, s, cmPath+tc.query)
			check(t, s.Create(configMap("new")))
			w.want(tc.want...)
		})
	}
}

func TestWatchRefused(t *testing.T) {
	s := start(t, Options{})
	for query, want := range map[string]int{
		"&resourceVersion=x": 500,
		"&resourceVersion=5&resourceVersionMatch=NotOlderThan": 422,
		"&sendInitialEvents=true":                              422,
		"&fieldSelector=a%3Db":                                 400,
	} {
		if resp, body := get(t, s, cmPath+query); resp.StatusCode != want {
			t.Errorf("%s: %s %s, want %d", query, resp.Status, body, want)
		}
	}
}

func TestWatchTooOld(t *testing.T) {
	s := start(t, Options{WatchCacheSize: 3})
	seed(t, s, 5) // versions 5 to 9; the last three stay
	watchLines(t, s, cmPath+"&resourceVersion=5").want("ERROR 410 Expired: too old resource version: 5 (6)", "EOF")
	watchLines(t, s, cmPath+"&resourceVersion=6").want("ADDED c002 7", "ADDED c003 8", "ADDED c004 9")
	// Another type's window is its own.
	watchLines(t, s, "/api/v1/namespaces?watch=1&resourceVersion=1").want("ADDED kube-node-lease 2")
}

func TestWatchFromTheFutureIsSilent(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=6&allowWatchBookmarks=true")
	seed(t, s, 3) // versions 5 to 7
	w.want("ADDED c002 7")
}

func TestWatchSelectors(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=4&labelSelector=k%3Dv")
	cm := configMap("a")
	check(t, s.Create(cm))
	for _, v := range []string{"v", "v", "w", "v"} {
		cm.Labels = map[string]string{"k": v}
		cm.Data["n"] += "x"
		check(t, s.Update(cm))
	}
	check(t, s.Delete(cm))
	w.want("ADDED a 6", "MODIFIED a 7", "DELETED a 8", "ADDED a 9", "DELETED a 10")
}

func TestWatchEncodings(t *testing.T) {
	for name, contentType := range encodings {
		t.Run(name, func(t *testing.T) {
			s := start(t, Options{})
			g := podgen.New(1)
			pods := clientset(t, s, contentType).CoreV1().Pods("")
			w := must(pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "4"}))(t)
			defer w.Stop()
			p := g.Pod(0)
			check(t, s.Create(p))
			expect(t, w, watch.Added, p)
			for n := range 4 {
				g.Mutate(p, n)
				check(t, s.Update(p))
				expect(t, w, watch.Modified, p)
			}
			check(t, s.Delete(p))
			p.ResourceVersion = "10"
			expect(t, w, watch.Deleted, p)

			old := must(pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "4"}))(t)
			defer old.Stop()
			expect(t, old, watch.Added, nil)
			s.Compact()
			gone := must(pods.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "4"}))(t)
			defer gone.Stop()
			ev := <-gone.ResultChan()
			if st, ok := ev.Object.(*metav1.Status); !ok || ev.Type != watch.Error || st.Code != 410 ||
				st.Reason != metav1.StatusReasonExpired {
				t.Errorf("got %s %+v, want an ERROR with 410", ev.Type, ev.Object)
			}
		})
	}
}

func expect(t *testing.T, w watch.Interface, kind watch.EventType, obj *corev1.Pod) {
	t.Helper()
	ev, ok := <-w.ResultChan()
	if !ok || ev.Type != kind {
		t.Fatalf("got %s %v, want %s", ev.Type, ev.Object, kind)
	}
	if obj == nil {
		return
	}
	got := ev.Object.(*corev1.Pod)
	got.TypeMeta = obj.TypeMeta
	if !equality.Semantic.DeepEqual(got, obj) {
		t.Fatalf("%s of %s at %s differs from the one stored at %s", kind, got.Name, got.ResourceVersion,
			obj.ResourceVersion)
	}
}

func TestWatchDynamicAndMetadata(t *testing.T) {
	s := start(t, Options{})
	opts := metav1.ListOptions{ResourceVersion: "4"}
	d := must(must(dynamic.NewForConfig(s.RESTConfig()))(t).Resource(widgetGVR).Watch(t.Context(), opts))(t)
	defer d.Stop()
	m := must(must(metadata.NewForConfig(s.RESTConfig()))(t).Resource(widgetGVR).Watch(t.Context(), opts))(t)
	defer m.Stop()
	w := widget("w")
	check(t, s.Create(w))
	check(t, s.Delete(w))
	for i, kind := range []watch.EventType{watch.Added, watch.Deleted} {
		for _, ch := range []<-chan watch.Event{d.ResultChan(), m.ResultChan()} {
			ev := <-ch
			acc, ok := ev.Object.(metav1.Object)
			if !ok || ev.Type != kind || acc.GetName() != "w" || acc.GetResourceVersion() != fmt.Sprint(5+i) {
				t.Fatalf("got %s %T %v", ev.Type, ev.Object, ev.Object)
			}
		}
	}
}

// TestBookmarks moves a fake clock to each moment at which the watch wakes.
func TestBookmarks(t *testing.T) {
	type step struct {
		at   time.Duration // since the watch began
		want string
	}
	for _, tc := range []struct {
		name  string
		query string
		write bool // change another type after the start
		steps []step
	}{
		{"before a timeout of 3 s", "&resourceVersion=7&timeoutSeconds=3&allowWatchBookmarks=true", true,
			[]step{{1650 * time.Millisecond, "BOOKMARK 8"}, {3 * time.Second, "EOF"}}},
		{"none before a timeout of 2 s", "&resourceVersion=7&timeoutSeconds=2&allowWatchBookmarks=true", true,
			[]step{{2 * time.Second, "EOF"}}},
		{"none unless asked for", "&resourceVersion=7&timeoutSeconds=3", true, []step{{3 * time.Second, "EOF"}}},
		{"none if the version is known", "&resourceVersion=7&timeoutSeconds=3&allowWatchBookmarks=true", false,
			[]step{{1650 * time.Millisecond, ""}, {3 * time.Second, "EOF"}}},
		{"none for what was replayed", "&resourceVersion=5&timeoutSeconds=3&allowWatchBookmarks=true", false,
			[]step{{0, "ADDED c001 6"}, {0, "ADDED c002 7"}, {1650 * time.Millisecond, ""}, {3 * time.Second, "EOF"}}},
		{"once a minute", "&resourceVersion=7&timeoutSeconds=100&allowWatchBookmarks=true", true,
			[]step{{60650 * time.Millisecond, "BOOKMARK 8"}, {98650 * time.Millisecond, "BOOKMARK 8"},
				{100 * time.Second, "EOF"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			clk := clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
			s := start(t, Options{Clock: clk})
			seed(t, s, 3) // versions 5 to 7
			w := watchLines(t, s, cmPath+tc.query)
			if tc.write {
				check(t, s.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}))
			}
			var now time.Duration
			for _, st := range tc.steps {
				if st.at > now {
					eventually(t, "the watch waits for the clock", clk.HasWaiters)
					clk.Step(st.at - now)
					now = st.at
				}
				if st.want != "" {
					w.want(st.want)
				}
			}
		})
	}
}

func TestBookmarkOfEachKind(t *testing.T) {
	s := start(t, Options{})
	check(t, s.Create(widget("w")))
	for _, gvr := range []schema.GroupVersionResource{widgetGVR, corev1.SchemeGroupVersion.WithResource("pods")} {
		yes := true
		w := must(must(metadata.NewForConfig(s.RESTConfig()))(t).Resource(gvr).Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		}))(t)
		defer w.Stop()
		ev := <-w.ResultChan()
		if gvr == widgetGVR {
			ev = <-w.ResultChan()
		}
		m, ok := ev.Object.(*metav1.PartialObjectMetadata)
		if !ok || ev.Type != watch.Bookmark || m.ResourceVersion != "5" ||
			m.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			t.Errorf("%s: got %s %+v", gvr.Resource, ev.Type, ev.Object)
		}
	}
}
