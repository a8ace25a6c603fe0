package apifile

import (
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
)

// TestPlaceToReadIsGivenBack: a watch that sends none of the changes that it has read keeps no
// place from others while its client takes nothing.
func TestPlaceToReadIsGivenBack(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, s, "10", configMap("a", "x", 1), configMap("a", "y", 2))
	h := New(db, Options{}).(*handler)
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	w := watchFrom(t, &storage{handler: h, kinds: h.kindsOf(states), header: http.Header{}}, 10)
	for _, list := range []string{
		"20", // its own version comes last
		"30", // another page's version is newer
	} {
		filetest.Relist(t, s, list, configMap("a", "x", map[string]int{"20": 20, "30": 31}[list]),
			configMap("a", "y", 2))
		b, err := w.Next(t.Context())
		if err != nil || b.Each == nil {
			t.Fatalf("%s: no changes, %v", list, err)
		}
		for c, err := range b.Each {
			t.Logf("%s: %v %v", list, c, err)
		}
		if n := len(shared.reading); n > 0 {
			t.Errorf("%s: %d places are held", list, n)
		}
		if list == "20" {
			brings(t, w)
		}
	}
}
