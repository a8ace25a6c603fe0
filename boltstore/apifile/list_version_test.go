package apifile

import (
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestGetWaitsForVersion: a get of a version that the file has not reached waits for it, as
// a list does, and gets 504 if it does not come.
func TestGetWaitsForVersion(t *testing.T) {
	for _, path := range []string{"/api/v1/configmaps?resourceVersionMatch=NotOlderThan&resourceVersion=20",
		"/api/v1/namespaces/a/configmaps/y?resourceVersion=20"} {
		clock := clocktesting.NewFakeClock(time.Now())
		db := filetest.Open(t, boltstore.Options{})
		s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
		filetest.Relist(t, s, "10", configMap("a", "x", 1))
		h := New(db, Options{Clock: clock})
		got := make(chan answered, 1)
		go func() { got <- ask(t, h, http.MethodGet, path) }()
		eventually(t, path+": nobody waits", func() bool { return clock.HasWaiters() || len(got) > 0 })
		filetest.Relist(t, s, "20", configMap("a", "x", 1), configMap("a", "y", 15))
		if a := <-got; a.code != http.StatusOK {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
		go func() { got <- ask(t, h, http.MethodGet, strings.Replace(path, "=20", "=50", 1)) }()
		eventually(t, path+": nobody waits", func() bool { return clock.HasWaiters() || len(got) > 0 })
		clock.Step(patience)
		if a := <-got; a.code != http.StatusGatewayTimeout ||
			!strings.Contains(a.body, "Too large resource version: 50, current: 20") {
			t.Errorf("%s: %d %s", path, a.code, a.body)
		}
	}
}
