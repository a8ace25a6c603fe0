package live

import (
	"errors"
	"net/http"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/apifile"
)

// TestRequestsForDamagedSource: a source with an unreadable meta hides no other, and is not
// served.
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
	c := dial(t, path)
	if st, err := c.Status(t.Context()); err != nil || len(st.Sources) != 2 {
		t.Errorf("%+v %v", st, err)
	}
	if n := len(listed(t, c)); n != 3 {
		t.Errorf("%d objects of the other", n)
	}
	resp, err := get(t, c, "/api/v1/pods", apifile.Options{}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		t.Error("the damaged source is served")
	}
}
