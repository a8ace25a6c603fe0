package apifile

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestConfirmedInAnotherBoot: the clock of a device without a battery began again at this
// boot. What was confirmed in it answers, whatever an earlier boot's clock has reached.
func TestConfirmedInAnotherBoot(t *testing.T) {
	hour := time.Hour
	earlier := boltstore.State{Source: source1("pods", "", ""), Kind: "Pod", Synced: true, Confirmed: time.Unix(1_000_000, 0)}
	now := boltstore.State{Source: source1("pods", "", ""), Kind: "Pod", Synced: true, Confirmed: time.Unix(5_000, 0), ConfirmedAge: &hour}
	now.Source.Form, earlier.Source.Form = boltstore.FormUnstructured, boltstore.FormTyped
	h := &handler{opts: Options{Clock: clock.RealClock{}}}
	for _, states := range [][]boltstore.State{{earlier, now}, {now, earlier}} {
		if got := h.kindsOf(states)[0].sources[0].Source; got != now.Source {
			t.Errorf("%s answers", got)
		}
	}
}

// TestRefusedEncoding: a client that refuses gzip gets none.
func TestRefusedEncoding(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	large := configMap("a", "x", 1)
	large.Data["large"] = string(make([]byte, 1<<20))
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10", large)
	h := New(db, Options{})
	for _, path := range []string{"/api/v1/configmaps", "/api/v1/configmaps?limit=1"} {
		for accept, want := range map[string]string{"gzip": "gzip", "GZIP": "gzip", "br, gzip;q=0.5": "gzip", "identity, gzip;q=0": "", "x-gzipped": "", "": ""} {
			if got := ask(t, h, http.MethodGet, path, "Accept-Encoding", accept).header.Get("Content-Encoding"); got != want {
				t.Errorf("%s: %q for %q", path, got, accept)
			}
		}
	}
}
