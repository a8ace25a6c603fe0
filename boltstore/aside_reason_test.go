package boltstore

import (
	"errors"
	"os"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/beside"
	"github.com/kubewake/kubewake/boltstore/internal/format"
	"github.com/kubewake/kubewake/boltstore/internal/layout"
)

// TestAsideReasons: each kind of unusable file has its own reason, even after a
// restart.
func TestAsideReasons(t *testing.T) {
	good := filled(t)
	newer := testPath(t)
	if err := newerFormat(newer); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(newer)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		content func(path string) error
		want    string
	}{
		"text":            {write([]byte("hello")), AsideForeign},
		"another's":       {otherBolt, AsideForeign},
		"truncated":       {write(good[:100_000]), AsideDamaged},
		"newer":           {newerFormat, AsideFormat},
		"newer, damaged":  {write(b[:len(b)-4096]), AsideFormat},
		"truncated short": {write(good[:5000]), AsideDamaged},
	} {
		path := testPath(t)
		if err := tc.content(path); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			db := openTest(t, path, Options{ReplaceForeign: true})
			got := db.Aside()
			if len(got) != 1 || got[0].Reason != tc.want || got[0].Bytes == 0 ||
				!strings.HasPrefix(got[0].Path, path+beside.AsideInfix) {
				t.Errorf("%s: %+v, want %s", name, got, tc.want)
			}
			closeTest(t, db)
		}
	}
}

// TestNewerIsNotSalvaged: the file of a newer program is not salvaged, however damaged.
func TestNewerIsNotSalvaged(t *testing.T) {
	path := testPath(t)
	fillSmall(t, path, Options{})
	b, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = b.Update(func(tx *bolt.Tx) error {
		return format.Put(tx.Bucket(layout.BucketFile), layout.KeyHeader,
			header{Format: formatVersion + 1, BootID: "another"})
	})
	if err := errors.Join(err, b.Close()); err != nil {
		t.Fatal(err)
	}
	for _, damaged := range []bool{false, true} {
		at := copied(t, strings.TrimSuffix(path, "/test.db")) + "/test.db"
		if damaged {
			st, err := os.Stat(at)
			if err == nil {
				err = os.Truncate(at, st.Size()-1)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		db := openTest(t, at, Options{})
		states, err := db.States()
		if a := db.Aside(); err != nil || len(states) != 0 || len(a) != 1 || a[0].Reason != AsideFormat {
			t.Errorf("damaged %v: %v %v %+v", damaged, err, states, a)
		}
		closeTest(t, db)
	}
}

// TestMismatchesAreSeen: the state shows, with its own reason, each mismatch between
// program and file: Go type, transform, index version.
func TestMismatchesAreSeen(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	claim := Claim{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
		"words": indexers["words"]}, IndexVersions: map[string]string{"words": "1"}}
	s := claimTest(t, db, claim)
	srv := server{}
	srv.set(configMap("a", "one", 1, nil))
	relist(t, s, "5", RelistOptions{}, srv.list(), 10)
	if st := s.State(); st.Outdated != "" || len(st.Reindexed) != 0 {
		t.Fatalf("%+v", st)
	}
	s.Release()
	claim.IndexVersions = map[string]string{"words": "2"}
	s = claimTest(t, db, claim)
	if st := s.State(); st.Outdated != "" || len(st.Reindexed) != 1 || st.Reindexed["words"] != 1 {
		t.Fatalf("%+v", st)
	}
	s.SetTransformVersion("2")
	states, err := db.States()
	if err != nil || states[0].Outdated != OutdatedTransform || states[0].Reindexed["words"] != 1 {
		t.Fatalf("%+v %v", states, err)
	}
	s.Release()
	claim.Example = &corev1.Secret{} // has another structure
	claim.Indexers = nil
	if s = claimTest(t, db, claim); s.State().Outdated != OutdatedType {
		t.Fatalf("%+v", s.State())
	}
}
