package apifile

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// TestConfirmedInAnotherBoot: the clock of a device without a battery restarted at this
// boot. A source that was confirmed in this boot answers, however far an earlier boot's
// clock had come.
func TestConfirmedInAnotherBoot(t *testing.T) {
	hour := time.Hour
	earlier := boltstore.State{Source: source1("pods", "", ""), Kind: "Pod", Synced: true,
		Confirmed: time.Unix(1_000_000, 0)}
	now := boltstore.State{Source: source1("pods", "", ""), Kind: "Pod", Synced: true, Confirmed: time.Unix(5_000, 0),
		ConfirmedAge: &hour}
	now.Source.Form, earlier.Source.Form = boltstore.FormUnstructured, boltstore.FormTyped
	h := &handler{opts: Options{Clock: clock.RealClock{}}}
	for _, states := range [][]boltstore.State{{earlier, now}, {now, earlier}} {
		if got := h.kindsOf(states)[0].sources[0].Source; got != now.Source {
			t.Errorf("%s answers", got)
		}
	}
}

// TestLeftBehind: a source that is no longer kept, for example since a mirror now keeps
// one namespace and not all, does not answer in place of a kept one.
func TestLeftBehind(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	all := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, all, "10", configMap("a", "x", 1), configMap("b", "z", 2))
	h := New(db, Options{})
	const of = "/api/v1/namespaces/a/configmaps"
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "a", ""), &corev1.ConfigMap{}), "20",
		configMap("a", "x", 1), configMap("a", "y", 15))
	expect(t, h, of, 200, "a/x") // both are kept: versions of the whole one hold everywhere
	watches := map[string]http.Handler{
		"?watch=1&resourceVersion=0": h,
		// as informers start, and kubewake serve answers
		"?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": New(db, Options{Fresh: time.Minute}),
	}
	begun, ended := make(chan struct{}), make(chan struct{})
	for query, h := range watches {
		go func() {
			w := &seen{httptest.NewRecorder(), "ADDED", func() { begun <- struct{}{} }}
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, of+query, nil))
			ended <- struct{}{}
		}()
		<-begun
	}
	all.Release()
	for range watches { // the next ones are of the source that is kept
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Error("a watch goes on at a source that nobody keeps")
		}
	}
	expect(t, h, of, 200, "a/x a/y")
	expect(t, h, of+"/y", 200, "")
	expect(t, h, "/api/v1/configmaps", 200, "a/x b/z")

	// In a file that no program has open, the source that was confirmed last answers.
	ago := func(d time.Duration, namespace string) boltstore.State {
		return boltstore.State{Source: source1("pods", namespace, ""), Kind: "Pod", Synced: true, ConfirmedAge: &d}
	}
	for age, want := range map[time.Duration]string{30 * time.Hour: "a", time.Minute + 2*time.Second: "a",
		time.Minute: ""} {
		c := clocktesting.NewFakeClock(time.Unix(3600*1000+1800, 0)) // half past
		for _, states := range [][]boltstore.State{{ago(age, ""), ago(time.Minute, "a")},
			{ago(time.Minute, "a"), ago(age, "")}} {
			if got := (&handler{opts: Options{Clock: c}}).kindsOf(states)[0].sources[0].Source.Namespace; got != want {
				t.Errorf("confirmed %s ago: that of namespace %q answers", age, got)
			}
		}
	}
}

// TestVersionLeftBehind: if a server serves an earlier version of a custom resource
// again, the mirror keeps that one, and discovery prefers it. The later version is served as it was
// left.
func TestVersionLeftBehind(t *testing.T) {
	of := func(version string) boltstore.Source {
		return boltstore.Source{Group: "example.com", Version: version, Resource: "things",
			Form: boltstore.FormUnstructured}
	}
	thing := func(version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/" + version,
			"kind":     "Thing",
			"metadata": map[string]any{"name": version, "namespace": "a", "resourceVersion": "5"}}}
	}
	db := filetest.Open(t, boltstore.Options{})
	h := New(db, Options{})
	preferred := func(want string) {
		t.Helper()
		a := ask(t, h, http.MethodGet, "/apis/example.com")
		if got, _, _ := unstructured.NestedString(a.object.Object, "preferredVersion", "version"); got != want {
			t.Errorf("%q is preferred, want %s: %s", got, want, a.body)
		}
		a = ask(t, h, http.MethodGet, "/apis", "Accept", kubeapi.MediaDiscovery)
		if at := strings.Index(a.body, `"version":"v`); at < 0 ||
			!strings.HasPrefix(a.body[at:], `"version":"`+want+`"`) {
			t.Errorf("%s does not come first: %s", want, a.body)
		}
	}
	v1 := filetest.Claim(t, db, of("v1"), thing("v1"))
	filetest.Relist(t, v1, "10", thing("v1"))
	beta := filetest.Claim(t, db, of("v1beta1"), thing("v1beta1"))
	preferred("v1") // the other one has not been listed
	filetest.Relist(t, beta, "20", thing("v1beta1"))
	preferred("v1") // both are kept
	const gone = "/apis/example.com/v1/things"
	expect(t, h, gone, 200, "a/v1")
	v1.Release()
	preferred("v1beta1")
	expect(t, h, gone, 200, "a/v1") // as of its last state, whose age the answer has
	expect(t, h, "/apis/example.com/v1beta1/things", 200, "a/v1beta1")
	beta.Release()

	minute, hours := time.Minute, 30*time.Hour
	c := clocktesting.NewFakeClock(time.Unix(3600*1000+1800, 0)) // half past
	for want, age := range map[string]*time.Duration{"v1": &minute, "v1beta1": &hours} {
		states := []boltstore.State{
			{Source: of("v1"), Kind: "Thing", Synced: true, ConfirmedAge: age},
			{Source: of("v1beta1"), Kind: "Thing", Synced: true, ConfirmedAge: new(time.Second)},
		}
		if got := (&handler{opts: Options{Clock: c}}).kindsOf(states)[0].Version; got != want {
			t.Errorf("%s is preferred, but v1 was confirmed %s ago", got, *age)
		}
	}
}

// TestGetOfPart: an object that only a source with selectors has is read by name. That
// another one is not there, such a source cannot say. A source that nobody keeps does not
// answer beside kept ones, and Secrets are served only if that is asked for.
func TestGetOfPart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wake.db")
	db := filetest.OpenAt(t, path, boltstore.Options{})
	web := filetest.Claim(t, db, source1("configmaps", "", "app=web"), &corev1.ConfigMap{})
	filetest.Relist(t, web, "10", configMap("a", "x", 1, "app=web"))
	byName := source1("configmaps", "b", "")
	byName.FieldSelector = "metadata.name=named"
	filetest.Relist(t, filetest.Claim(t, db, byName, &corev1.ConfigMap{}), "12", configMap("b", "named", 2))
	secrets := filetest.Claim(t, db, source1("secrets", "", "app=web"), &corev1.Secret{})
	filetest.Relist(t, secrets, "10", &corev1.Secret{ObjectMeta: meta("a", "s", 3, "app=web")})
	h := New(db, Options{})
	const a, b = "/api/v1/namespaces/a/configmaps", "/api/v1/namespaces/b/configmaps"
	expect(t, h, a+"/x", 200, "")
	expect(t, h, b+"/named", 200, "")
	expect(t, h, a+"/named", 503, "does not have all that is asked for")
	expect(t, h, a+"/y", 503, "does not have all that is asked for")
	expect(t, h, a, 503, "does not have all that is asked for")
	expect(t, h, a+"?fieldSelector=metadata.name%3Dx", 503, "does not have all that is asked for")
	expect(t, h, "/api/v1/namespaces/a/secrets/s", 403, "not served")
	expect(t, New(db, Options{Secrets: true}), "/api/v1/namespaces/a/secrets/s", 200, "")

	passed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	on := New(db, Options{Otherwise: passed})
	expect(t, on, a+"/x", 200, "")
	expect(t, on, a+"/y", http.StatusTeapot, "")
	web.Release()
	expect(t, on, a+"/x", http.StatusTeapot, "")

	// In a file that no program has open, each source answers as it was left.
	left := filepath.Join(t.TempDir(), "left.db")
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	all, err := io.ReadAll(snap)
	if err := errors.Join(err, os.WriteFile(left, all, 0o600)); err != nil {
		t.Fatal(err)
	}
	expect(t, New(filetest.OpenAt(t, left, boltstore.Options{ReadOnly: true}), Options{Otherwise: passed}), a+"/x",
		200, "")
}
