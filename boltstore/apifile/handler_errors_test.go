package apifile

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubewake/kubewake/boltstore"
	"github.com/kubewake/kubewake/internal/filetest"
	"github.com/kubewake/kubewake/internal/kubesim"
)

// TestErrorsAreLogged: the file's logger has an error that clients see as 500.
func TestErrorsAreLogged(t *testing.T) {
	path := t.TempDir() + "/f.db"
	db := filetest.OpenAt(t, path, boltstore.Options{})
	filetest.Relist(t, filetest.Claim(t, db, source1("configmaps", "", ""), &corev1.ConfigMap{}), "10",
		configMap("a", "x", 1))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	filetest.InSource(t, path, func(src *bolt.Bucket) error {
		items := src.Bucket([]byte("items"))
		key, _ := items.Cursor().First()
		return items.Put(slices.Clone(key), []byte("no record"))
	})
	var said strings.Builder
	log := funcr.New(func(_, args string) { said.WriteString(args) }, funcr.Options{})
	db = filetest.OpenAt(t, path, boltstore.Options{ReadOnly: true, Logger: &log})
	expect(t, New(db, Options{}), "/api/v1/configmaps", 500, "damaged")
	if !strings.Contains(said.String(), `"path"="/api/v1/configmaps"`) {
		t.Error(said.String())
	}
}

// TestWarningOfFullFile: while the file takes no changes, a warning of old data says so.
func TestWarningOfFullFile(t *testing.T) {
	sim := kubesim.New(kubesim.Options{})
	if _, err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(sim.Close)
	db, err := boltstore.Open(t.TempDir()+"/f.db", boltstore.Options{MaxSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if db.Close() == nil {
			t.Error("all was kept")
		}
	})
	mirror(t, sim, db)
	const full = "the file takes no changes"
	warning := func(o Options) string {
		return expect(t, New(db, o), "/api/v1/configmaps", 200, "").header.Get("Warning")
	}
	old := Options{WarnAfter: time.Nanosecond}
	if text := warning(old); text == "" || strings.Contains(text, full) {
		t.Errorf("before: %s", text)
	}
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "y"},
		Data: map[string]string{"k": strings.Repeat("x", 2<<20)}}
	if err := sim.Create(large); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file is full", func() bool { return db.Err() != nil })
	for _, tc := range []struct {
		o    Options
		full bool
	}{{old, true}, {Options{Fresh: time.Millisecond}, true}, {Options{}, false}} {
		if text := warning(tc.o); strings.Contains(text, full) != tc.full {
			t.Errorf("%+v: %s", tc.o, text)
		}
	}
}
