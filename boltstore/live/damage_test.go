package live

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/boltstore"
	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
)

// TestRequestsForDamagedSource: a source with an unreadable meta hides no other, and a request for
// it gets the reason.
func TestRequestsForDamagedSource(t *testing.T) {
	path := testPath(t)
	pods := boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}
	db, err := boltstore.Open(path, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := db.Claim(boltstore.Claim{Source: pods, Example: &corev1.Pod{}})
	if err == nil {
		s.Release()
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte("sources")).Bucket([]byte(pods.ID())).Put([]byte("meta"), []byte("what can this be"))
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	db, _ = world(t, path, 3, 1)
	start(t, db, defaultLimits)
	for name, r := range map[string]Reader{"file": File(db), "socket": dial(t, path)} {
		st, err := r.Status(t.Context())
		if err != nil || len(st.Sources) != 2 {
			t.Errorf("%s: %+v %v", name, st, err)
		}
		if n := len(objects(t, r, Query{})); n != 3 {
			t.Errorf("%s: %d objects of the other", name, n)
		}
		err = r.Objects(t.Context(), Query{Source: pods}, nil)
		if err == nil || errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
