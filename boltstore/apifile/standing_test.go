package apifile

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/fifo"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubeapi"
)

// TestChangesWithoutAVersion: some servers send deletes with the version that the object
// had, and changes under an unchanged version. A watch that has begun brings them, as
// handlers are told of them.
func TestChangesWithoutAVersion(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, s, "10", configMap("a", "x", 1), configMap("a", "y", 2))
	h := New(db, Options{}).(*handler)
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	st := &storage{handler: h, kinds: h.kindsOf(states), header: http.Header{}}
	w, err := st.Watch(t.Context(), st.kinds[0].Type, kubeapi.WatchQuery{Version: 10, Selection: kubeapi.Selection{Labels: labels.Everything(), Fields: fields.Everything()}})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	q := fifo.New(s, nil)
	other := configMap("a", "y", 2)
	other.Data["k"] = "other"
	for _, change := range []func() error{
		func() error { return q.Delete(configMap("a", "x", 1)) },
		func() error { return q.Update(other) },
		func() error { return q.Flush(t.Context()) },
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok, err := s.GetByKey("a/x"); ok || err != nil {
		t.Fatal("the file has not taken the delete")
	}
	var got []string
	for {
		b, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if b.Each == nil {
			break
		}
		for c, err := range b.Each {
			switch {
			case err != nil:
				t.Fatal(err)
			case c.Cur == nil:
				got = append(got, "deleted")
			default:
				got = append(got, "changed")
			}
		}
	}
	if text := strings.Join(got, " "); text != "deleted changed" {
		t.Errorf("the watch brought %q", text)
	}
}
