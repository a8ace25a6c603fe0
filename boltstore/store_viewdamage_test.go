package boltstore

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestViewTellsClaim: damage that a view meets degrades the claim of the same source,
// and no other.
func TestViewTellsClaim(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.db")
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	claims := map[string]*Claimed{}
	for resource, example := range map[string]runtime.Object{"pods": &corev1.Pod{}, "configmaps": &corev1.ConfigMap{}} {
		s, err := db.Claim(Claim{Source: Source{Version: "v1", Resource: resource, Form: FormTyped}, Example: example})
		if err != nil {
			t.Fatal(err)
		}
		claims[resource] = s
	}
	pods := claims["pods"]
	t.Cleanup(func() {
		for _, s := range claims {
			s.Release()
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	page := []runtime.Object{&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "web", Name: "shop", UID: "u",
		ResourceVersion: "1",
		Labels:          map[string]string{"find": "precious"}}}}
	relist := func(version string) {
		t.Helper()
		r, err := pods.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Page(page); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Commit(version, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	relist("2")

	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(b, []byte("precious"))
	if at < 0 {
		t.Fatal("the object is not in the file")
	}
	_, err = f.WriteAt([]byte("P"), int64(at))
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}

	view := func() (objects int, err error) {
		v, err := db.View(pods.Source())
		if err != nil {
			t.Fatal(err)
		}
		p, err := v.Page(nil, 10)
		return len(p.Objects), err
	}
	if _, err := view(); !errors.Is(err, ErrDamaged) {
		t.Fatal("the view does not see it:", err)
	}
	select {
	case <-pods.Upstream.Damaged():
	default:
		t.Error("the claim does not know")
	}
	if err := pods.Err(); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
	if err := claims["configmaps"].Err(); err != nil {
		t.Error("the other source:", err)
	}
	relist("3") // which the claim's owner does then
	if n, err := view(); n != 1 || err != nil || pods.Err() != nil {
		t.Error(n, err, pods.Err())
	}
}
