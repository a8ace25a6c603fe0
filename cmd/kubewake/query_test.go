package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ktypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/boltstore/live"
	"github.com/kubewake/kubewake/history"
	"github.com/kubewake/kubewake/internal/filetest"
)

var secrets = boltstore.Source{Version: "v1", Resource: "secrets", Form: boltstore.FormTyped}

func secretOf(i, size int) *corev1.Secret {
	name := fmt.Sprintf("s%05d", i)
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprintf("ns%d", i%3), Name: name, UID: ktypes.UID(name),
			ResourceVersion: fmt.Sprint(i + 1),
			Annotations:     map[string]string{corev1.LastAppliedConfigAnnotation: "hunter2"}},
		Data: map[string][]byte{"password": []byte(strings.Repeat("hunter2", size/7+1))},
	}
}

// shortPath is the path of a file with a socket: t.TempDir's may be too long for one.
func shortPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "q-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "f.db")
}

// openShort opens a new file until the test ends.
func openShort(t *testing.T) *boltstore.DB {
	t.Helper()
	db, err := boltstore.Open(shortPath(t), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// secretsIn is a file with n secrets, and the store that owns them, until the test ends.
func secretsIn(t *testing.T, n, size int) (*boltstore.DB, *boltstore.Claimed) {
	t.Helper()
	db := openShort(t)
	s, err := db.Claim(boltstore.Claim{Source: secrets, Example: &corev1.Secret{},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Release)
	relistSecrets(t, s, n, size, "100")
	return db, s
}

func relistSecrets(t *testing.T, s *boltstore.Claimed, n, size int, version string) {
	t.Helper()
	var objs []runtime.Object
	for i := range n {
		objs = append(objs, secretOf(i, size))
	}
	filetest.Relist(t, s, version, objs...)
}

// readers are those of an open file: its own, and the one of another process, by the socket.
func readers(t *testing.T, db *boltstore.DB) map[string]*reader {
	t.Helper()
	owner, err := live.Serve(db, live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := (&dbFile{path: db.Path()}).owner()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(r.Close(), owner.Close()); err != nil {
			t.Error(err)
		}
	})
	return map[string]*reader{"file": {db: db}, "socket": r}
}

func stateOf(t *testing.T, db *boltstore.DB, src boltstore.Source) boltstore.State {
	t.Helper()
	states, err := db.Sources()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range states {
		if st.Source == src {
			return st
		}
	}
	return boltstore.State{Source: src}
}

// TestSameAnswers: a file and its copy by the socket give the same answers.
func TestSameAnswers(t *testing.T) {
	db, s := secretsIn(t, 700, 10)
	relistSecrets(t, s, 699, 10, "200") // one is deleted
	all := readers(t, db)
	st := stateOf(t, db, secrets)
	for want, q := range map[int]query{
		699: {source: st}, 699_000: {source: st, secrets: true}, 233: {source: st, namespace: "ns1"},
	} {
		said := map[string]string{}
		for name, r := range all {
			var text strings.Builder
			n := 0
			err := r.objects(t.Context(), q, func(u *unstructured.Unstructured) error {
				b, err := u.MarshalJSON()
				text.Write(b)
				n++
				return err
			})
			if err != nil || n != min(want, 699) {
				t.Errorf("%s: %d objects, want %d: %v", name, n, want, err)
			}
			said[name] = text.String()
		}
		if said["file"] != said["socket"] {
			t.Errorf("%q: socket and file differ", q.namespace)
		}
		shown := strings.Contains(said["file"], "aHVudGVy") || strings.Contains(said["file"], "hunter2")
		if shown != q.secrets {
			t.Errorf("%q: secrets shown: %t", q.namespace, shown)
		}
	}
	for name, r := range all {
		var changes []objectVersion
		q := query{source: st, key: "ns0/s00699"}
		add := func(v objectVersion) error { changes = append(changes, v); return nil }
		if err := r.history(t.Context(), q, add); err != nil {
			t.Fatal(err)
		}
		if len(changes) != 1 || changes[0].Type != cache.Deleted || changes[0].Object.GetName() != "s00699" ||
			changes[0].Object.Object["data"].(map[string]any)["password"] != redacted {
			t.Errorf("%s: %+v", name, changes)
		}
		pods := boltstore.State{Source: boltstore.Source{Version: "v1", Resource: "pods", Form: boltstore.FormTyped}}
		for _, q := range []query{{source: st, key: "no/no", at: history.Moment{Time: time.Now()}}, {source: pods}} {
			if err := r.asItWas(t.Context(), q, nil); !errors.Is(err, errNotFound) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := r.objects(t.Context(), query{source: pods}, nil); err == nil {
			t.Errorf("%s: it has no pods", name)
		}
	}
}

// TestContentsGoMeanwhile: if contents are set aside while they are read, the reader
// gets an error, not a part as if it were all.
func TestContentsGoMeanwhile(t *testing.T) {
	db, s := secretsIn(t, 600, 5000)
	n := 0
	q := query{source: stateOf(t, db, secrets)}
	err := (&reader{db: db}).objects(t.Context(), q, func(*unstructured.Unstructured) error {
		if n++; n == 1 {
			return s.Upstream.Empty()
		}
		return nil
	})
	if err == nil && n < 600 {
		t.Errorf("%d objects and no error", n)
	}
}

// TestIndex: each value of an index comes with its keys. Indices of secrets, except the
// namespace, are shown only on request.
func TestIndex(t *testing.T) {
	db, s := secretsIn(t, 7, 10)
	err := s.AddIndexers(cache.Indexers{"password": func(obj any) ([]string, error) {
		return []string{string(obj.(*corev1.Secret).Data["password"])}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	complete := func() bool {
		v, err := db.View(secrets)
		return err == nil && v.GetIndexers()["password"] != nil
	}
	for deadline := time.After(time.Minute); ; { // the index is built beside other work, by a commit
		committed, err := s.Changed()
		if err != nil {
			t.Fatal(err)
		}
		if complete() {
			break
		}
		select {
		case <-committed:
		case <-deadline:
			t.Fatal("the index is not built")
		}
	}
	for name, r := range readers(t, db) {
		read := func(name, value string, show bool) (all []string, err error) {
			q := query{source: stateOf(t, db, secrets), secrets: show}
			err = r.index(t.Context(), q, name, value, func(v indexValue) error {
				all = append(all, fmt.Sprint(v.Value, v.Keys))
				return nil
			})
			return all, err
		}
		got, err := read(cache.NamespaceIndex, "", false)
		want := []string{"ns0[ns0/s00000 ns0/s00003 ns0/s00006]", "ns1[ns1/s00001 ns1/s00004]",
			"ns2[ns2/s00002 ns2/s00005]"}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read(cache.NamespaceIndex, "ns1", false); err != nil || !slices.Equal(got, want[1:2]) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read("password", "", false); !errors.Is(err, errSecret) || got != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read("password", "", true); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if _, err := read("none", "", false); !errors.Is(err, errNotFound) {
			t.Errorf("%s: %v", name, err)
		}
		stop := errors.New("enough")
		q, stops := query{source: stateOf(t, db, secrets)}, func(indexValue) error { return stop }
		if err := r.index(t.Context(), q, cache.NamespaceIndex, "", stops); !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestObjectAsItWas: both readers show an earlier state of an object, redacted, or say
// that they do not know it.
func TestObjectAsItWas(t *testing.T) {
	db, s := secretsIn(t, 2, 10)
	relistSecrets(t, s, 2, 50, "200") // the same versions, with other content
	relistSecrets(t, s, 1, 50, "300")
	for name, r := range readers(t, db) {
		read := func(key string, at history.Moment) (all []*unstructured.Unstructured, err error) {
			q := query{source: stateOf(t, db, secrets), key: key, at: at}
			err = r.asItWas(t.Context(), q, func(u *unstructured.Unstructured) error {
				all = append(all, u)
				return nil
			})
			return all, err
		}
		version := func(v string) history.Moment { return history.Moment{ResourceVersion: v} }
		got, err := read("ns0/s00000", version("150"))
		if err != nil || len(got) != 1 || got[0].GetResourceVersion() != "1" {
			t.Errorf("%s: %v, %v", name, got, err)
		} else if p, _, _ := unstructured.NestedString(got[0].Object, "data", "password"); p != redacted {
			t.Errorf("%s: shown %q", name, p)
		}
		for _, at := range []history.Moment{version("400"), version("x"), {Time: time.Unix(1, 0)}} {
			if got, err := read("ns0/s00000", at); !errors.Is(err, history.ErrUnknown) {
				t.Errorf("%s: at %s: %v, %v", name, at, got, err)
			}
		}
		if got, err := read("ns1/s00001", history.Moment{Time: time.Now()}); !errors.Is(err, errNotFound) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if got, err := read("ns1/s00001", version("250")); err != nil || len(got) != 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestNamespace: a query of a namespace gets its objects in the order of their keys, and
// reads no others.
func TestNamespace(t *testing.T) {
	db, _ := secretsIn(t, 3000, 10)
	for reader, r := range readers(t, db) {
		for ns, want := range map[string]int{
			"ns0": 1000, "ns1": 1000, "ns2": 1000, "ns": 0, "ns22": 0, "a": 0, "z": 0, "": 3000,
		} {
			var keys []string
			q := query{source: stateOf(t, db, secrets), namespace: ns}
			err := r.objects(t.Context(), q, func(u *unstructured.Unstructured) error {
				if ns != "" && u.GetNamespace() != ns {
					t.Errorf("%s: %q has an object of %q", reader, ns, u.GetNamespace())
				}
				keys = append(keys, u.GetNamespace()+"/"+u.GetName())
				return nil
			})
			if err != nil || len(keys) != want || !slices.IsSorted(keys) {
				t.Errorf("%s: %q: %d objects, want %d, sorted %v: %v",
					reader, ns, len(keys), want, slices.IsSorted(keys), err)
			}
		}
	}
}
