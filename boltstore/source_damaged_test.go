package boltstore

import (
	"bytes"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestDamagedMetaAgain: a source's facts in the file may be damaged more than once. Each
// time one transaction empties the source.
func TestDamagedMetaAgain(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Nanosecond})
	for range 3 {
		s := claimTest(t, db, Claim{})
		relist(t, s, "1", RelistOptions{}, []runtime.Object{at(1, "a")}, 10)
		s.Release()
		if err := db.h.update(func(tx *bolt.Tx) error {
			src, _ := db.h.source(tx, configMaps.ID())
			return src.Root.Put(layout.KeyMeta, []byte("damaged"))
		}, nil); err != nil {
			t.Fatal(err)
		}
	}
	last := func() (id int) {
		if err := db.h.view(func(tx *bolt.Tx) error { id = tx.ID(); return nil }); err != nil {
			t.Fatal(err)
		}
		return id
	}
	before := last()
	if s := claimTest(t, db, Claim{}); s.State().Synced || s.Err() != nil {
		t.Errorf("%+v, %v", s.State(), s.Err())
	}
	if n := last() - before; n != 1 {
		t.Errorf("%d transactions: between two, a full disk leaves a source without meta", n)
	}
}

// TestRotateWithDamagedMeta: a source with a damaged meta does not stop a conversion, and
// other sources do not suffer. The old file, with the lost part, is set aside.
func TestRotateWithDamagedMeta(t *testing.T) {
	path := testPath(t)
	o := Options{Keyset: sealtest.Keyset(), Window: time.Nanosecond}
	db := openTest(t, path, o)
	claims := []Claim{{}, {Source: Source{Version: "v1", Resource: "others", Form: FormTyped}}}
	for i, c := range claims {
		s := claimTest(t, db, c)
		p := &testProducer{}
		s.Feed.Attach(p)
		p.add(t, s, configMap("a", "b", i+1, nil))
		p.wait(t)
		s.Release()
	}
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		v := bytes.Clone(src.Root.Get(layout.KeyMeta))
		v[5] ^= 1
		return src.Root.Put(layout.KeyMeta, v)
	}, nil)
	if err == nil {
		err = db.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	changeHeader(t, path, keysDue)
	db = openTest(t, path, o)
	if db.KeysDue() {
		t.Fatal("not rotated")
	}
	s := claimTest(t, db, claims[1])
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("a", "c", 10, nil))
	p.wait(t)
	if n := len(s.ListKeys()); n != 2 || s.Err() != nil || len(db.AsidePaths()) != 1 {
		t.Fatalf("%d objects, %v, set aside %q", n, s.Err(), db.AsidePaths())
	}
	if h, ok := headerOf(db.AsidePaths()[0]); !ok || h.Keys == nil {
		t.Error("what was set aside is not encrypted")
	}
	if s := claimTest(t, db, claims[0]); s.State().Synced {
		t.Errorf("%+v", s.State())
	}
	closeTest(t, db)
	onlyFile(t, path, db.AsidePaths()...)
}
