package apifile

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
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
// had, and changes under an unchanged version. An open watch brings them, just as
// handlers are told them.
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
	w := watchFrom(t, st, 10)
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
	if text := strings.Join(brings(t, w), " "); text != "-x@10 +y@2" {
		t.Errorf("the watch brought %q", text)
	}
}

func watchFrom(t *testing.T, s *storage, version uint64) kubeapi.Watch {
	t.Helper()
	w, err := s.Watch(t.Context(), s.kinds[0].Type,
		kubeapi.WatchQuery{Version: version,
			Selection: kubeapi.Selection{Labels: labels.Everything(), Fields: fields.Everything()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// brings returns the events of a watch until it has brought all changes, with the
// versions that a client sees.
func brings(t *testing.T, w kubeapi.Watch) (all []string) {
	t.Helper()
	for {
		b, err := w.Next(t.Context())
		switch {
		case err != nil:
			t.Fatal(err)
		case b.Mark:
			all = append(all, fmt.Sprint("bookmark@", b.Version))
			continue
		case b.Each == nil:
			return all
		}
		for c, err := range b.Each {
			switch {
			case err != nil:
				t.Fatal(err)
			case c.Cur == nil:
				all = append(all, fmt.Sprintf("-%s@%d", c.Prev.Name, c.Version))
			default:
				all = append(all, fmt.Sprintf("+%s@%d", c.Cur.Name, c.Cur.Version))
			}
		}
	}
}

// TestBrokenInAList: the changes of a list are not ordered by version. A watch that
// breaks off among them, and goes on from the last version that its client has seen,
// misses none of them, even if an object has the list's own version.
func TestBrokenInAList(t *testing.T) {
	db := filetest.Open(t, boltstore.Options{})
	s := filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{})
	filetest.Relist(t, s, "10", configMap("a", "x", 1), configMap("a", "y", 2), configMap("b", "z", 3),
		configMap("c", "c", 4))
	h := New(db, Options{}).(*handler)
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	st := &storage{handler: h, kinds: h.kindsOf(states), header: http.Header{}}
	early := watchFrom(t, st, 10)
	filetest.Relist(t, s, "20", configMap("a", "x", 20), configMap("b", "z", 15), configMap("c", "c", 4))
	filetest.Relist(t, s, "30", configMap("a", "x", 29), configMap("b", "z", 15), configMap("c", "c", 4))
	all := brings(t, early)
	if got := strings.Join(all, " "); got != "+z@15 -y@10 +x@20 bookmark@20 +x@29 bookmark@30" {
		t.Errorf("the watch brought %s", got)
	}
	for i, last := range all {
		_, text, _ := strings.Cut(last, "@") // what a client goes on from
		version, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.Join(brings(t, watchFrom(t, st, version)), " ")
		for _, want := range all[i+1:] {
			if want, _, _ := strings.Cut(want, "@"); want != "bookmark" && !strings.Contains(rest, want) {
				t.Errorf("after %s, %s does not come: %v", last, want, rest)
			}
		}
	}

	// The pages of a list may be of several versions.
	filetest.Relist(t, s, "40", configMap("a", "x", 29), configMap("b", "z", 42))
	for {
		b, err := early.Next(t.Context())
		if b.Each != nil {
			for _, err = range b.Each {
				if err != nil {
					break
				}
			}
		}
		if err == nil && b.Each == nil {
			t.Fatal("the watch goes on")
		}
		if errors.Is(err, kubeapi.ErrExpired) {
			break
		}
	}
}
