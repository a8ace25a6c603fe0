package boltstore

import (
	"bytes"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/boltstore/internal/pages"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestReplacementKeepsAside: a source's contents that were set aside survive a replacement of the
// file, for as long as they must be kept.
func TestReplacementKeepsAside(t *testing.T) {
	for name, o := range map[string]Options{"unclean boot": {}, "damaged": {}, "open": {}, "rotated": {Keyset: sealtest.Keyset()}} {
		t.Run(name, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, o)
			s := claimTest(t, db, Claim{})
			if err := s.Add(configMap("a", "b", 1, nil)); err != nil {
				t.Fatal(err)
			}
			if err := s.SetAside(); err != nil {
				t.Fatal(err)
			}
			freelist := func() int {
				f, done, err := pages.Open(path)
				if err != nil {
					t.Fatal(err)
				}
				defer done()
				return int(f.Freelist())
			}
			want := 0
			switch name {
			case "open":
				db.healing().heal(errTripped, db.h.now.Load())
				want = 1
			case "rotated":
				db = rotated(t, db)
			default:
				closeTest(t, db)
				changeHeader(t, path, ofUncleanBoot)
				if name == "damaged" {
					ruin(t, path, freelist())
					want = 1
				}
				db = openTest(t, path, o)
			}
			if n := asides(t, db); n != 1 || len(db.AsidePaths()) != want {
				t.Errorf("%d sources are aside, set aside is %q", n, db.AsidePaths())
			}
		})
	}
}

// TestHalfRemovedAside: a half-removed source is not damage, and need not be kept.
func TestHalfRemovedAside(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	fill(t, s, 20, 1)
	s.Release()
	err := db.h.update(func(tx *bolt.Tx) error {
		if err := db.h.moveAside(tx, configMaps.ID(), discarded); err != nil {
			return err
		}
		room := 2000
		aside := tx.Bucket(layout.BucketAside)
		k, _ := aside.Cursor().First()
		_, err := prune(aside.Bucket(k), &room)
		return err
	}, nil)
	if err != nil || asides(t, db) != 1 {
		t.Fatal(err)
	}
	closeTest(t, db)
	changeHeader(t, path, ofUncleanBoot)
	db = openTest(t, path, Options{})
	if n := asides(t, db); n != 0 || len(db.AsidePaths()) > 0 {
		t.Errorf("%d sources are aside, set aside is %q", n, db.AsidePaths())
	}
}

// TestSetAsideTwiceAtOnce: a source's facts in the file may be damaged twice at the same
// time of the clock, which may stand still or be set back.
func TestSetAsideTwiceAtOnce(t *testing.T) {
	db := openTest(t, testPath(t), Options{Clock: testingclock.NewFakeClock(time.Now()), Window: time.Nanosecond})
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
		s.Attach(p)
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
	s.Attach(p)
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
