package kubesim

import (
	"errors"
	"net/http"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
)

// reach sends a GET over its own connection.
func reach(t *testing.T, s *Server, path string) (int, error) {
	t.Helper()
	req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL()+path, nil))(t)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

func TestRestartExpiresEveryVersion(t *testing.T) {
	s := start(t, Options{})
	seed(t, s, 2) // versions 5 and 6
	url := s.URL()
	w := watchLines(t, s, cmPath+"&resourceVersion=6")
	page := must(clientset(t, s, "").CoreV1().ConfigMaps("").List(t.Context(), metav1.ListOptions{Limit: 1}))(t)
	check(t, s.Restart(RestartOptions{Initializing: 2}))
	w.want("broken")
	if s.URL() != url {
		t.Errorf("the server moved from %s to %s", url, s.URL())
	}
	for i, want := range []int{429, 429, 200} {
		resp, body := get(t, s, "/api/v1/configmaps")
		if resp.StatusCode != want {
			t.Errorf("request %d after the restart: %s %s, want %d", i, resp.Status, body, want)
		}
		if want == 429 && resp.Header.Get("Retry-After") != "1" {
			t.Errorf("429 with Retry-After %q", resp.Header.Get("Retry-After"))
		}
	}
	watchLines(t, s, cmPath+"&resourceVersion=6").want("ERROR 410 Expired: too old resource version: 6 (11)", "EOF")
	watchLines(t, s, "/api/v1/pods?watch=1&resourceVersion=6").want("ERROR 410 Expired: too old resource "+
		"version: 6 (11)", "EOF")
	rest := must(clientset(t, s, "").CoreV1().ConfigMaps("").List(t.Context(),
		metav1.ListOptions{Continue: page.Continue}))(t)
	if names(rest) != "c001" || rest.ResourceVersion != "6" {
		t.Errorf("the second page has %q at %s", names(rest), rest.ResourceVersion)
	}
}

func TestRestartDownAndHeld(t *testing.T) {
	clk := clocktesting.NewFakeClock(time.Now())
	s := start(t, Options{Clock: clk})
	check(t, s.Restart(RestartOptions{Down: 5 * time.Second}))
	if _, err := reach(t, s, "/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while down: %v, want connection refused", err)
	}
	clk.Step(5 * time.Second)
	eventually(t, "the server is back", func() bool {
		code, err := reach(t, s, "/readyz")
		return err == nil && code == 200
	})

	check(t, s.Restart(RestartOptions{Hold: true}))
	if _, err := reach(t, s, "/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while held: %v, want connection refused", err)
	}
	check(t, s.Resume())
	if code, err := reach(t, s, "/readyz"); err != nil || code != 200 {
		t.Errorf("after Resume: %d, %v", code, err)
	}
	check(t, s.RefuseConnections(true))
	if _, err := reach(t, s, "/readyz"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("while refusing: %v, want connection refused", err)
	}
	check(t, s.RefuseConnections(false))
	if code, err := reach(t, s, "/readyz"); err != nil || code != 200 {
		t.Errorf("after refusing: %d, %v", code, err)
	}
}

func TestCompactKeepsRunningWatches(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=4")
	seed(t, s, 2)
	s.Compact()
	check(t, s.Create(configMap("x")))
	w.want("ADDED c000 5", "ADDED c001 6", "ADDED x 7")
	watchLines(t, s, cmPath+"&resourceVersion=5").want("ERROR 410 Expired: too old resource version: 5 (6)")
	watchLines(t, s, cmPath+"&resourceVersion=6").want("ADDED x 7")
}

func TestRewind(t *testing.T) {
	s := start(t, Options{})
	objs := seed(t, s, 3) // versions 5 to 7
	objs[0].Data["k"] = "changed"
	check(t, s.Update(objs[0]))
	check(t, s.Delete(objs[1]))
	check(t, s.Create(configMap("later"))) // version 10
	w := watchLines(t, s, cmPath+"&resourceVersion=10")
	check(t, s.Rewind(6))
	w.want("broken")

	list, rev, err := s.List(&corev1.ConfigMap{})
	check(t, err)
	if rev != 6 || len(list) != 2 || list[0].(*corev1.ConfigMap).Data["k"] != "c000" ||
		list[1].GetResourceVersion() != "6" {
		t.Errorf("state at %d: %v", rev, list)
	}
	silent := watchLines(t, s, cmPath+"&resourceVersion=10")
	for _, name := range []string{"n7", "n8", "n9", "n10", "n11"} {
		check(t, s.Create(configMap(name)))
	}
	silent.want("ADDED n11 11")
	watchLines(t, s, cmPath+"&resourceVersion=5").want("ERROR 410 Expired: too old resource version: 5 (6)")
	if err := s.Rewind(12); err == nil {
		t.Error("rewound into the future")
	}
	check(t, s.Rewind(4))
	if list, _, _ := s.List(&corev1.ConfigMap{}); len(list) != 0 {
		t.Errorf("state before the first write: %v", list)
	}
}

func TestRecreate(t *testing.T) {
	s := start(t, Options{})
	seed(t, s, 3) // versions 5 to 7
	before := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	check(t, s.Get(before))
	w := watchLines(t, s, cmPath+"&resourceVersion=7")
	check(t, s.Recreate(100))
	w.want("broken")
	list, rev, err := s.List(&corev1.ConfigMap{})
	check(t, err)
	if rev != 104 || len(list) != 0 {
		t.Errorf("state at %d: %v", rev, list)
	}
	after := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}
	check(t, s.Get(after))
	if after.UID == before.UID {
		t.Error("the same cluster")
	}
	watchLines(t, s, cmPath+"&resourceVersion=7").want("ERROR 410 Expired: too old resource version: 7 (100)")
	fresh := watchLines(t, s, cmPath+"&resourceVersion=104")
	check(t, s.Create(configMap("new")))
	fresh.want("ADDED new 105")
}

func TestHistoryIsBounded(t *testing.T) {
	s := start(t, Options{HistorySize: 10})
	cm := configMap("a")
	check(t, s.Create(cm)) // version 5
	check(t, s.Create(configMap("b")))
	check(t, s.Delete(configMap("b"))) // version 7
	for range 100 {
		cm.Data["n"] += "x"
		check(t, s.Update(cm))
	}
	if err := s.Rewind(20); err == nil {
		t.Error("rewound beyond the history")
	}
	if n := len(s.history); n > 20 {
		t.Errorf("%d superseded versions kept", n)
	}
	if tb := s.tableByKind(corev1.SchemeGroupVersion.WithKind("ConfigMap")); len(tb.entries) != 1 ||
		len(tb.sorted) != 1 {
		t.Errorf("%d entries, %d sorted, want 1: a deleted object's are kept", len(tb.entries), len(tb.sorted))
	}
	check(t, s.Rewind(100))
	check(t, s.Get(cm))
	if cm.ResourceVersion != "100" {
		t.Errorf("version %s, want 100", cm.ResourceVersion)
	}
}

func TestDropConnections(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=4")
	s.DropConnections()
	w.want("broken")
	seed(t, s, 1)
	watchLines(t, s, cmPath+"&resourceVersion=4").want("ADDED c000 5")
}

func TestEndWatches(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=4")
	s.EndWatches(nil)
	w.want("EOF")
	w = watchLines(t, s, cmPath+"&resourceVersion=4")
	s.EndWatches(apierrors.NewResourceExpired("The resourceVersion for the provided watch is too old."))
	w.want("ERROR 410 Expired: The resourceVersion for the provided watch is too old.", "EOF")
}

func TestStall(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=4")
	s.Stall(true)
	seed(t, s, 1)
	answered := make(chan error, 1)
	go func() {
		_, err := reach(t, s, "/readyz")
		answered <- err
	}()
	eventually(t, "the request has arrived", func() bool { r := s.Requests(); return r[len(r)-1].Path == "/readyz" })
	r := s.Requests()
	if r[0].BodyBytes != 0 || r[len(r)-1].Status != 0 || !r[len(r)-1].Open {
		t.Errorf("answered in a stall: %+v", r)
	}
	select {
	case err := <-answered:
		t.Errorf("answered in a stall: %v", err)
	default:
	}
	s.Stall(false)
	check(t, <-answered)
	w.want("ADDED c000 5")
}

func TestCloseInStall(t *testing.T) {
	s := start(t, Options{})
	s.Stall(true)
	w := make(chan error, 1)
	go func() {
		_, err := reach(t, s, cmPath)
		w <- err
	}()
	eventually(t, "the request has arrived", func() bool { return len(s.Requests()) == 1 })
	s.Close()
	if err := <-w; err == nil {
		t.Error("a stalled request was answered by Close")
	}
	s.Close()
}

func TestFailNext(t *testing.T) {
	s := start(t, Options{})
	cfg := s.RESTConfig()
	cfg.WarningHandler = rest.NoWarnings{}
	isPods := func(r *http.Request) bool { return r.URL.Path == "/api/v1/pods" }
	s.FailNext(isPods, 1, Answer(apierrors.NewServiceUnavailable("down")))
	s.FailNext(isPods, 2, nil)
	for i, want := range []int{503, 0, 0, 200} {
		if code, err := reach(t, s, "/api/v1/pods"); code != want || (err != nil) != (want == 0) {
			t.Errorf("request %d: %d, %v, want %d", i, code, err, want)
		}
		if code, err := reach(t, s, "/api/v1/nodes"); code != 200 || err != nil {
			t.Errorf("a request that does not match: %d, %v", code, err)
		}
	}
	s.FailNext(nil, 1, Answer(apierrors.NewInternalError(errors.New("boom"))))
	err := restClient(t, cfg).Get().Resource("nodes").Do(t.Context()).Error()
	if st := statusOf(t, err); st.Code != 500 || st.Message != "Internal error occurred: boom" {
		t.Errorf("got %+v", st)
	}
}

func TestRequestRecords(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Close)
	seen := make(chan string, 100)
	s.OnRequest = func(r *http.Request) { seen <- r.URL.Path }
	must(s.Start())(t)
	seed(t, s, 3)
	c := clientset(t, s, "").CoreV1()
	ctx := t.Context()
	must(c.ConfigMaps("").List(ctx, metav1.ListOptions{}))(t)
	must(c.ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1}))(t)
	must(c.ConfigMaps("").List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=none"}))(t)
	must(c.ConfigMaps("default").Get(ctx, "c000", metav1.GetOptions{}))(t)
	must(c.ConfigMaps("default").Create(ctx, configMap("x"), metav1.CreateOptions{}))(t)
	watchLines(t, s, cmPath+"&resourceVersion=4&labelSelector=!a").want("ADDED c000 5")
	watchLines(t, s, cmPath).want("ADDED c000 5")
	watchLines(t, s, cmPath+sie+"&resourceVersion=5").want("ADDED c000 5")
	watchLines(t, s, cmPath+"&resourceVersion=0&sendInitialEvents=false&resourceVersionMatch=NotOlderThan")
	for i, want := range []struct {
		verb, resource, namespace string
		status, items             int
		full, open                bool
	}{
		{"list", "configmaps", "", 200, 3, true, false},
		{"list", "configmaps", "default", 200, 1, false, false},
		{"list", "configmaps", "", 200, 0, false, false},
		{"get", "configmaps", "default", 200, 0, false, false},
		{"create", "configmaps", "default", 201, 0, false, false},
		{"watch", "configmaps", "default", 200, 4, false, true},
		{"watch", "configmaps", "default", 200, 4, true, true},
		{"watch", "configmaps", "default", 200, 4, true, true},
		{"watch", "configmaps", "default", 200, 0, false, true},
	} {
		var r RequestRecord
		eventually(t, "the record is complete", func() bool {
			r = s.Requests()[i]
			return r.Items == want.items && r.Open == want.open
		})
		if r.Verb != want.verb || r.Resource != want.resource || r.Namespace != want.namespace ||
			r.Status != want.status || r.FullRead() != want.full {
			t.Errorf("record %d: %+v, full read %v\nwant %+v", i, r, r.FullRead(), want)
		}
		if (r.BodyBytes > 0) != (i != 8) || r.Start.IsZero() || r.UserAgent == "" || r.Path != <-seen {
			t.Errorf("record %d: %+v", i, r)
		}
	}
	if r := s.Requests()[5]; r.LabelSelector != "!a" {
		t.Errorf("label selector %q", r.LabelSelector)
	}
	s.ResetRequests()
	if n := len(s.Requests()); n != 0 {
		t.Errorf("%d records after ResetRequests", n)
	}
}

func TestMute(t *testing.T) {
	s := start(t, Options{})
	w := watchLines(t, s, cmPath+"&resourceVersion=4")
	s.Mute()
	seed(t, s, 1)
	watchLines(t, s, cmPath+"&resourceVersion=4").want("ADDED c000 5") // a later one is served
	if r := s.Requests(); !r[0].Open || r[0].BodyBytes != 0 {
		t.Errorf("the first watch: %+v", r[0])
	}
	s.DropConnections()
	w.want("broken")
}
