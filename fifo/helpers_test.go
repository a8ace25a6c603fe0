package fifo

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// settings are the settings of a queue.
type settings struct {
	transform cache.TransformFunc
	most      int
	now       func() time.Time
}

func newQueue(t *testing.T, db boltstore.Options, o settings) (*Queue, *boltstore.Claimed) {
	t.Helper()
	q, s, _ := newFile(t, db, o)
	return q, s
}

// newFile is newQueue and returns the file, too.
func newFile(t *testing.T, db boltstore.Options, o settings) (*Queue, *boltstore.Claimed, *boltstore.DB) {
	t.Helper()
	db.Keyset = sealtest.Default()
	file, err := boltstore.Open(filepath.Join(t.TempDir(), "test.db"), db)
	if err != nil {
		t.Fatal(err)
	}
	s, err := file.Claim(boltstore.Claim{
		Source:  boltstore.Source{Version: "v1", Resource: "configmaps", Form: boltstore.FormTyped},
		Example: &corev1.ConfigMap{},
		Indexers: cache.Indexers{"odd": func(o any) ([]string, error) {
			if o.(*corev1.ConfigMap).Name == "unindexable" {
				return nil, errors.New("cannot index this")
			}
			return nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Release(); _ = file.Close() })
	q := New(s, o.transform)
	q.most = cmp.Or(o.most, q.most)
	if o.now != nil {
		q.now = o.now
	}
	t.Cleanup(q.Close)
	return q, s, file
}

func object(name string, rv int) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns",
		ResourceVersion: fmt.Sprint(rv)}}
}

// pop returns the next delta, at the latest after a while.
func pop(t *testing.T, q *Queue) cache.Delta {
	t.Helper()
	var got cache.Delta
	done := make(chan error, 1)
	go func() {
		_, err := q.Pop(func(obj any, _ bool) error { got = obj.(cache.Deltas)[0]; return nil })
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing to pop")
	}
	return got
}
