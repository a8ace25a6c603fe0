package examples

import (
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/tests/apiserver"
)

func setting(name, version string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: name, Labels: map[string]string{"device": "d1"}},
		Data:       map[string]string{"version": version},
	}
}

// TestEdge: an agent lives three times: with a link, without one, and with one again. In
// the second life it has its settings, says how old they are, and cannot report. In the
// third it reports the changes that it owed from the first, and a delete that was made in
// between.
func TestEdge(t *testing.T) {
	t.Parallel()
	sim, kubeconfig := simulator(t)
	var refuses atomic.Bool // reports
	refusal := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "", http.StatusServiceUnavailable)
	})
	sim.FailNext(func(r *http.Request) bool {
		return refuses.Load() && r.Method == http.MethodPatch
	}, 1_000_000, refusal)
	create(t, sim, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d1"}}, setting("a", "1"), setting("b", "1"))
	other := setting("other", "1")
	other.Labels["device"] = "d2"
	create(t, sim, other)
	dir, addr := t.TempDir(), apiserver.FreeAddress(t)
	life := func() *program {
		return start(t, dir, []string{"KUBECONFIG=" + kubeconfig}, built(t, "edge"), "-device", "d1", "-http", addr,
			"-oldest", "1h")
	}

	p := life()
	p.says("after the start: 0 settings, of unknown age", "reported: applied web/a", "reported: applied web/b")
	refuses.Store(true)
	create(t, sim, setting("c", "1"))
	p.says("not reported, for now: applied web/c")
	p.end() // in order, so its reports are acknowledged

	if err := sim.RefuseConnections(true); err != nil {
		t.Fatal(err)
	}
	remove(t, sim, setting("a", ""))
	p = life()
	p.says("after the start: 3 settings, confirmed ", "not reported, for now: applied web/c")
	t.Log(p.said.all()[0])
	body, header := get(t, "http://"+addr+"/settings")
	if body != "web/a 1\nweb/b 1\nweb/c 1\n" || header.Get("Age") == "" {
		t.Errorf("offline it has, with age %q\n%s", header.Get("Age"), body)
	}
	for _, path := range []string{"/readyz", "/healthz"} {
		if body, _ := get(t, "http://"+addr+path); !strings.HasPrefix(body, "ok") {
			t.Errorf("%s: %s", path, body)
		}
	}
	if err := p.kill(); err != nil {
		t.Fatal(err)
	}

	refuses.Store(false)
	if err := sim.RefuseConnections(false); err != nil {
		t.Fatal(err)
	}
	sim.ResetRequests()
	p = life()
	p.says("after the start: 3 settings, confirmed ", "reported: applied web/c", "reported: removed web/a")
	p.end()
	for _, l := range p.said.all() {
		if strings.HasSuffix(l, "web/b") {
			t.Errorf("reported again: %s", l)
		}
	}
	if n := fullReads(sim); n != 0 {
		t.Errorf("everything was read %d times", n)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "d1"}}
	if err := sim.Get(node); err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"settings.example.com/b": "1",
		"settings.example.com/c": "1"}; !maps.Equal(node.Annotations, want) {
		t.Errorf("the node has %v", node.Annotations)
	}
}

// get reads a page.
func get(t *testing.T, url string) (body string, header http.Header) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b), resp.Header
}
