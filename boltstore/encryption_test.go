package boltstore

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/tink-crypto/tink-go/v2/daead"
	"github.com/tink-crypto/tink-go/v2/keyset"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/kubewake/kubewake/boltstore/seal"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/podgen"
	"github.com/kubewake/kubewake/internal/sealtest"
)

var (
	podSource    = Source{Version: "v1", Resource: "pods", Form: FormTyped}
	secretSource = Source{Version: "v1", Resource: "secrets", Namespace: "vault-namespace",
		LabelSelector: "tier=classified", Form: FormTyped}
	podIndexers = cache.Indexers{
		cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"node":               func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil },
		"label": func(o any) (out []string, err error) {
			for k, v := range o.(*corev1.Pod).Labels {
				out = append(out, k+"="+v)
			}
			return out, nil
		},
		"long": func(o any) ([]string, error) { return []string{strings.Repeat(o.(*corev1.Pod).Name, 40)}, nil },
	}
)

// needles are strings of values that must not be found in an encrypted file. Names and index
// values are none.
type needles map[string]bool

// inEveryFile has words that are in every file.
const inEveryFile = "file header sources meta gen items index journal handlers aside format bootID clean " +
	"synced created keys keyID dataKey rotate node label long namespace"

func (n needles) add(all ...string) {
	for _, s := range all {
		if len(s) >= 5 && !strings.Contains(inEveryFile, s) {
			n[s] = true
		}
	}
}

func (n needles) object(o metav1.Object) {
	n.add(string(o.GetUID()))
	for k, v := range o.GetAnnotations() {
		n.add(k, v)
	}
	for _, r := range o.GetOwnerReferences() {
		n.add(string(r.UID))
	}
}

func (n needles) found(file []byte) (found []string) {
	for s := range n {
		if bytes.Contains(file, []byte(s)) {
			found = append(found, s)
		}
	}
	return found
}

// fillCluster uses a file in every way: relists, a journal with deletes and
// updates, indices, told marks, contents of another cluster.
func fillCluster(t testing.TB, path string, o Options, pods int) needles {
	t.Helper()
	n := needles{}
	o.maxCommitBytes = 64 << 10
	db, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	s := claimTest(t, db, Claim{Source: podSource, Example: &corev1.Pod{}, Indexers: podIndexers})
	gen := podgen.New(1)
	var objs []runtime.Object
	for i := range pods {
		p := gen.Pod(i)
		p.ResourceVersion = fmt.Sprint(1000 + i)
		n.object(p)
		n.add(p.Spec.Containers[0].Image, p.Status.PodIP)
		objs = append(objs, p)
	}
	s.Upstream.NoteFacts(func(f *listing.Facts) {
		f.Server = listing.Server{ClusterUID: "the-clusters-own-uid", Address: "https://server.of.the.cluster:6443"}
	})
	list := func(objs []runtime.Object, rv string) {
		r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		if err == nil {
			err = r.Page(objs)
		}
		if err == nil {
			_, err = r.Commit(rv, time.Now())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	list(objs, "5000")
	n.add("the-clusters-own-uid", "server.of.the.cluster")
	p := &testProducer{}
	s.Feed.Attach(p)
	b := &Batch{ResourceVersion: "5003"}
	for i, typ := range []cache.DeltaType{cache.Deleted, cache.Updated, cache.Deleted} {
		pod := objs[i].(*corev1.Pod).DeepCopy()
		pod.ResourceVersion = fmt.Sprint(5001 + i)
		pod.Annotations["changed"] = "an annotation of the journal's"
		c, err := s.Feed.Prepare(typ, pod)
		if err != nil {
			t.Fatal(err)
		}
		b.Changes = append(b.Changes, c)
	}
	n.add("an annotation of the journal's")
	p.put(b)
	s.wake(true)
	select {
	case <-p.done:
	case <-time.After(time.Minute):
		t.Fatal("not committed")
	}
	s.Delivery.SetTold(2)
	list(objs[10:], "6000")

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vault-namespace", Name: "database-password",
			UID: types.UID("5ec2e700-1111-4222-8333-444455556666"), ResourceVersion: "7"},
		Data: map[string][]byte{"password-key": []byte("correct horse battery staple")},
	}
	n.object(secret)
	n.add("password-key", "correct horse battery staple",
		base64.StdEncoding.EncodeToString(secret.Data["password-key"]), "tier=classified", "classified")
	ss := claimTest(t, db, Claim{Source: secretSource, Example: &corev1.Secret{},
		Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
	if err := ss.Add(secret); err != nil {
		t.Fatal(err)
	}
	old := claimTest(t, db, Claim{})
	theirs := configMap("other-cluster-namespace", "other-cluster-object", 1, nil)
	if err := errors.Join(old.Add(theirs), old.Upstream.Empty()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []*Claimed{s, ss, old} {
		s.Release()
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

func contentOf(t testing.TB, db *DB) (objs []any, entries int) {
	t.Helper()
	if r, err := db.Check(); err != nil || !r.Sound() || len(r.Sources) != 3 {
		t.Fatalf("%+v %v", r, err)
	}
	for _, src := range []Source{podSource, secretSource} {
		s, err := db.View(src)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.ListErr()
		if err != nil {
			t.Fatal(err)
		}
		objs = append(objs, all...)
		if src == podSource {
			e, err := newClaimed(s).Feed.ReadJournal(1)
			if err != nil || len(e) == 0 {
				t.Fatalf("journal: %v %v", e, err)
			}
			entries = len(e)
			keys := 0
			for _, v := range s.ListIndexFuncValues(cache.NamespaceIndex) {
				k, err := s.IndexKeys(cache.NamespaceIndex, v)
				if err != nil {
					t.Fatal(err)
				}
				keys += len(k)
			}
			if keys != len(all) {
				t.Fatalf("%d of %d in the index", keys, len(all))
			}
		}
	}
	return objs, entries
}

// TestNoValueIsReadable: no content of an object is in the bytes of an encrypted file, even
// if the file was converted.
func TestNoValueIsReadable(t *testing.T) {
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	plain, sealed := testPath(t), testPath(t)
	n := fillCluster(t, plain, Options{}, 120)
	found := n.found(read(plain))
	t.Logf("%d strings; in the plain file %d of them", len(n), len(found))
	if len(found) < len(n)*9/10 {
		t.Fatal("the search does not find what is there")
	}
	fillCluster(t, sealed, Options{Keyset: sealtest.Keyset()}, 120)
	hidden := func(what, path string) {
		t.Helper()
		if found := n.found(read(path)); len(found) > 0 {
			t.Errorf("%s: found %q", what, found)
		}
		if m, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*")); len(m) != 1 {
			t.Errorf("%s: beside it are %q", what, m)
		}
		if m, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(m) != 0 {
			t.Errorf("%s: beside it are %q", what, m)
		}
	}
	hidden("encrypted from the start", sealed)

	db := openTest(t, plain, Options{decrypt: true})
	objs, entries := contentOf(t, db)
	closeTest(t, db)
	db = openTest(t, plain, Options{Keyset: sealtest.Keyset()})
	hidden("converted", plain)
	got, gotEntries := contentOf(t, db)
	sameObjects(t, "converted", objs, got)
	if entries != gotEntries || !db.Encrypted() {
		t.Fatal(entries, gotEntries, db.Encrypted())
	}
	before := sealedValues(t, db)
	db = rotated(t, db)
	after := sealedValues(t, db)
	hidden("rotated", plain)
	got, _ = contentOf(t, db)
	sameObjects(t, "rotated", objs, got)
	closeTest(t, db)
	// By another key all sealed values differ, and the names are as before.
	for at, v := range before {
		if len(after[at]) < 16 || bytes.Contains(after[at], v[len(v)-16:]) {
			t.Errorf("%q is as before the rotation", at)
		}
	}
	if len(before) < 100 || len(after) != len(before) {
		t.Errorf("%d values before the rotation, %d after it", len(before), len(after))
	}
	if err := Decrypt(plain, Options{}); !errors.Is(err, ErrKeyset) {
		t.Error("decrypted without a keyset: ", err)
	}
	if err := Decrypt(testPath(t), Options{Keyset: sealtest.Keyset()}); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a missing file was decrypted: ", err)
	}
	if err := Decrypt(plain, Options{Keyset: sealtest.Keyset()}); err != nil {
		t.Fatal(err)
	}
	db = openTest(t, plain, Options{decrypt: true})
	got, _ = contentOf(t, db)
	sameObjects(t, "decrypted", objs, got)
	// What was set aside or deleted is gone from its pages.
	if found := n.found(read(plain)); db.Encrypted() || len(found) < len(n)*8/10 {
		t.Fatalf("not decrypted: %d of %d", len(found), len(n))
	}
}

// TestKeysetErrors: each problem with the keyset gives one line, and the file stays
// unchanged.
func TestKeysetErrors(t *testing.T) {
	path := testPath(t)
	dir := t.TempDir()
	fillCluster(t, path, Options{Keyset: sealtest.Keyset()}, 20)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := func(name, content string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	other := filepath.Join(dir, "other")
	if err := seal.Generate(other); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBEWAKE_TEST_MALFORMED", `{"primaryKeyId": 7}`)
	cases := map[string]struct {
		keyset *seal.Keyset
		says   string
	}{
		"none":            {nil, "no keyset was given; give the one that has the key"},
		"wrong":           {seal.File(other), "the keyset file " + other + " does not open it"},
		"missing":         {seal.File(filepath.Join(dir, "no", "file")), "no/file: open"},
		"empty":           {seal.File(at("empty", "")), "it is not a cleartext Tink keyset"},
		"malformed":       {seal.File(at("malformed", "{")), "it is not a cleartext Tink keyset"},
		"not a keyset":    {seal.File(at("json", `{"a":"secret words"}`)), "it is not a cleartext Tink keyset"},
		"variable unset":  {seal.Env("KUBEWAKE_TEST_UNSET"), "$KUBEWAKE_TEST_UNSET: the variable is not set"},
		"variable broken": {seal.Env("KUBEWAKE_TEST_MALFORMED"), "$KUBEWAKE_TEST_MALFORMED: it is not"},
		"callback fails": {seal.Func("of the KMS", func() (*keyset.Handle, error) {
			return nil, errors.New("no network")
		}), "the keyset of the KMS: no network"},
		"callback empty": {seal.Func("of the KMS", func() (*keyset.Handle, error) {
			return nil, nil
		}), "there is none"},
		"not for AEAD": {seal.Func("daead", func() (*keyset.Handle, error) {
			return keyset.NewHandle(daead.AESSIVKeyTemplate())
		}), "not for AEAD"},
	}
	files := map[string][]byte{"sound": good, "truncated": good[:len(good)/2]}
	for name, tc := range cases {
		for state, content := range files {
			for _, readOnly := range []bool{false, true} {
				if state == "truncated" && readOnly {
					continue // said to be truncated
				}
				path := testPath(t)
				if err := os.WriteFile(path, content, 0o600); err != nil {
					t.Fatal(err)
				}
				_, err := Open(path, Options{Keyset: tc.keyset, ReadOnly: readOnly, decrypt: readOnly})
				if !errors.Is(err, ErrKeyset) || !strings.Contains(err.Error(), tc.says) ||
					!strings.Contains(err.Error(), path) ||
					strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "secret words") {
					t.Errorf("%s, %s: %v", name, state, err)
				}
				if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, content) {
					t.Errorf("%s, %s: the file was changed: %v", name, state, err)
				}
				if m, _ := os.ReadDir(filepath.Dir(path)); len(m) != 1 {
					t.Errorf("%s, %s: beside it are %v", name, state, m)
				}
			}
		}
	}
	// Nor is a file made.
	path = testPath(t)
	if _, err := Open(path, Options{Keyset: seal.File(filepath.Join(dir, "no"))}); !errors.Is(err, ErrKeyset) {
		t.Error(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestSecretsInAPlainFile: there is one warning, which says how to encrypt the file.
func TestSecretsInAPlainFile(t *testing.T) {
	for _, ks := range []*seal.Keyset{nil, sealtest.Keyset()} {
		var lines []string
		l := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		logger := klog.Logger(l)
		db, err := Open(testPath(t), Options{Keyset: ks, Logger: &logger})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			claimTest(t, db, Claim{Source: secretSource, Example: &corev1.Secret{}}).Release()
			claimTest(t, db, Claim{}).Release()
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		lines = slices.DeleteFunc(lines, func(s string) bool { return !strings.Contains(s, "Secrets") })
		want := 1
		if ks != nil {
			want = 0
		}
		if len(lines) != want || want == 1 && !strings.Contains(lines[0], "kubewake keys generate") {
			t.Errorf("warned %q", lines)
		}
	}
}
