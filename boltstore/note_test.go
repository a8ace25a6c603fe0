package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/boltstore/internal/layout"
	"github.com/kubewake/kubewake/internal/listing"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// errRefused is the error of transforms in these tests.
var errRefused = errors.New("zq-refused")

// notedOf returns the noted keys, sorted, with their notes.
func notedOf(t *testing.T, s *Store) (all []string) {
	t.Helper()
	must(t, s.view(func(_ *sourceMeta, src sourceTx) error {
		ns, _, err := src.contents().notes.page(nil, 1<<20, s.health.meet)
		for _, n := range ns {
			if n.Why == "" || n.Time == 0 {
				t.Errorf("%+v", n)
			}
			all = append(all, n.Key+" at "+n.RV)
		}
		return err
	}))
	slices.Sort(all)
	return all
}

// TestNotesStay: each kind of copy of a file carries the notes, and in an encrypted
// file they cannot be read.
func TestNotesStay(t *testing.T) {
	path := testPath(t)
	o := Options{Keyset: sealtest.Keyset()}
	db := openTest(t, path, o)
	bad := []string{"odd1", "odd2"}
	s := claimTest(t, db, failing(&bad))
	srv := server{}
	for i := range 20 {
		srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"words": "w"}))
	}
	srv.set(configMap("ns", "odd1", 50, nil), configMap("ns", "odd2", 51, nil))
	relistSome(t, s, "100", RelistOptions{Transform: refusing("cm3", "cm4")}, srv.list())
	srv.set(configMap("ns", "cm5", 101, nil), configMap("ns", "cm6", 102, nil))
	relistSome(t, s, "110", RelistOptions{Transform: refusing("cm3", "cm5")}, srv.list())
	want := []string{"ns/cm3 at 4", "ns/cm5 at 101", "ns/odd1 odd", "ns/odd2 odd"}
	expectNoted(t, "in the life that saw it", s, want...)
	if st := s.State(); st.Unstored != 2 || st.Unindexed != 2 || !strings.Contains(st.UnstoredReason, "zq-refused") {
		t.Errorf("%+v", st)
	}
	again := func(what string, o Options) {
		t.Helper()
		closeTest(t, db)
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if db.Encrypted() && bytes.Contains(raw, []byte("zq-refused")) {
			t.Errorf("%s: why an object was refused can be read in the file", what)
		}
		db = openTest(t, path, o)
		s = claimTest(t, db, failing(&bad))
		expectNoted(t, what, s, want...)
		if st := s.State(); st.Unstored != 2 || st.Unindexed != 2 {
			t.Errorf("%s: %+v", what, st)
		}
	}
	again("reopened", o)
	if _, err := db.Compact(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	expectNoted(t, "compacted", s, want...)
	again("compacted and reopened", o)
	db = rotated(t, db)
	again("rotated and reopened", o)
	again("decrypted", Options{Keyset: o.Keyset, decrypt: true})
	again("encrypted", o)
	db = saved(t, db)
	s = claimTest(t, db, failing(&bad))
	expectNoted(t, "salvaged", s, want...)
	snap, err := db.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var copied bytes.Buffer
	if _, err := copied.ReadFrom(snap); err != nil {
		t.Fatal(err)
	}
	if err := snap.Close(); err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "copy.db")
	if err := os.WriteFile(other, copied.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	expectNoted(t, "the snapshot", claimTest(t, openTest(t, other, o), failing(&bad)), want...)

	// A list with all of the objects removes all notes.
	bad = nil
	relistSome(t, s, "120", RelistOptions{}, srv.list())
	indexAgain(t, s)
	expectNoted(t, "at last", s)
	sameObjects(t, "at last", srv.anys(), s.List())
	if objs, err := s.ByIndex("odd", "v50"); err != nil || len(objs) != 1 {
		t.Error(len(objs), err)
	}
}

// TestRefusedAfterAnUpgrade: an object that an earlier program stored and the new one's
// transform refuses is not served, and counts as existing.
func TestRefusedAfterAnUpgrade(t *testing.T) {
	for _, how := range []string{"stored", "stored by the watch", "gone", "gone by the watch", "refused again",
		"replaced"} {
		t.Run(how, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			s := claimTest(t, db, Claim{Indexers: indexers})
			srv := server{}
			for i := range 9 {
				srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"words": "w"}))
			}
			relist(t, s, "100", RelistOptions{}, srv.list(), 5)
			closeTest(t, db)
			db = openTest(t, path, Options{})
			s = claimTest(t, db, Claim{Indexers: indexers})
			s.SetTransformVersion("2")
			relistSome(t, s, "110", RelistOptions{Transform: refusing("cm3")}, srv.list())
			expectNoted(t, "at first", s, "ns/cm3 at 4")
			if _, there, err := s.GetByKey("ns/cm3"); there || err != nil {
				t.Errorf("served: %v", err)
			}
			if n := len(s.List()); n != 8 {
				t.Errorf("%d objects", n)
			}
			for _, e := range journalFrom(t, s, 1) {
				if e.Type == cache.Deleted {
					t.Errorf("told that %s is gone", e.Key)
				}
			}
			before := s.State().Seq
			p := &testProducer{}
			s.Feed.Attach(p)
			want := cache.Added
			next := configMap("ns", "cm3", 111, nil)
			switch how {
			case "stored":
				relistSome(t, s, "120", RelistOptions{}, srv.list())
			case "stored by the watch":
				event(t, s, p, cache.Updated, next, nil)
			case "gone":
				delete(srv, "ns/cm3")
				relistSome(t, s, "120", RelistOptions{}, srv.list())
				want = cache.Deleted
			case "gone by the watch":
				event(t, s, p, cache.Deleted, cache.DeletedFinalStateUnknown{Key: "ns/cm3"}, nil)
				want = cache.Deleted
			case "refused again":
				event(t, s, p, cache.Updated, next, errRefused)
				expectNoted(t, "again", s, "ns/cm3 at 111")
				closeTest(t, db)
				db = openTest(t, path, Options{})
				s = claimTest(t, db, Claim{Indexers: indexers})
				s.SetTransformVersion("3") // stores all objects again, over the note
				relistSome(t, s, "130", RelistOptions{Transform: refusing("cm3")}, srv.list())
				expectNoted(t, "and again", s, "ns/cm3 at 4")
				delete(srv, "ns/cm3")
				before = s.State().Seq
				relistSome(t, s, "140", RelistOptions{}, srv.list())
				want = cache.Deleted
			case "replaced":
				next.UID = "another"
				event(t, s, p, cache.Updated, next, nil)
			}
			expectNoted(t, "at last", s)
			told := journalFrom(t, s, before+1)
			if how == "replaced" && len(told) == 2 && told[0].Type == cache.Deleted {
				told = told[1:]
			}
			if len(told) != 1 || told[0].Type != want || told[0].Key != "ns/cm3" {
				t.Fatalf("told %+v", told)
			}
			if want == cache.Deleted {
				obj, err := told[0].Object()
				if dead, ok := obj.(cache.DeletedFinalStateUnknown); err != nil || !ok ||
					dead.Obj.(*corev1.ConfigMap).Name != "cm3" {
					t.Errorf("%v %v", obj, err)
				}
			}
		})
	}
}

// TestNotesOfEvents: a note is removed with its version, a later one, or the object, but
// not with an older version that comes late.
func TestNotesOfEvents(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	at := func(rv int) *corev1.ConfigMap { return configMap("ns", "a", rv, nil) }
	event(t, s, p, cache.Added, at(5), nil)
	event(t, s, p, cache.Updated, at(5), errRefused)
	expectNoted(t, "of a version that is stored", s)
	event(t, s, p, cache.Updated, at(9), errRefused)
	event(t, s, p, cache.Updated, at(7), errRefused)
	expectNoted(t, "of the newest", s, "ns/a at 9")
	event(t, s, p, cache.Updated, at(8), nil)
	expectNoted(t, "behind an older one", s, "ns/a at 9")
	event(t, s, p, cache.Deleted, at(8), nil)
	expectNoted(t, "behind an older delete", s, "ns/a at 9")
	event(t, s, p, cache.Updated, at(9), nil)
	expectNoted(t, "stored", s)
	event(t, s, p, cache.Added, configMap("ns", "b", 10, nil), errRefused)
	event(t, s, p, cache.Deleted, configMap("ns", "b", 11, nil), nil)
	expectNoted(t, "deleted", s)
	event(t, s, p, cache.Added, configMap("ns", "b", 12, nil), errRefused)
	event(t, s, p, cache.Added, "no object", cache.KeyError{Obj: "zq-content", Err: errRefused})
	if st := s.State(); st.Unstored != 2 || strings.Contains(st.UnstoredReason, "zq-content") {
		t.Errorf("%+v", st)
	}
	relistSome(t, s, "20", RelistOptions{}, []runtime.Object{at(9)})
	expectNoted(t, "gone from a list", s)
	if st := s.State(); st.Unstored != 0 || st.UnstoredReason != "" || s.Feed.UnstoredObjects() != 0 {
		t.Errorf("%+v", st)
	}
}

// TestNotedIsNotSame: a list never takes a noted object for unchanged.
func TestNotedIsNotSame(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	relistSome(t, s, "4", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)})
	event(t, s, p, cache.Updated, configMap("ns", "a", 5, nil), errRefused)
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Compare([]listing.Object{{Namespace: "ns", Name: "a", UID: "uid-a", ResourceVersion: "1"},
		{Namespace: "ns", Name: "b", UID: "uid-b", ResourceVersion: "2"}})
	if err != nil || !slices.Equal(got, []listing.Match{listing.MatchDiffers, listing.MatchSame}) {
		t.Fatal(got, err)
	}
}

// TestNotesOfAllObjects: if no object can be stored, the notes are in the file, and meta
// stays small.
func TestNotesOfAllObjects(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	var objs []runtime.Object
	for i := range 3000 {
		objs = append(objs, configMap("ns", fmt.Sprint("cm", i), i+1, nil))
	}
	all := func(runtime.Object) (runtime.Object, error) {
		return nil, fmt.Errorf("%w: %s", errRefused, strings.Repeat("long ", 1000))
	}
	relistSome(t, s, "9000", RelistOptions{Transform: all}, objs)
	if st := s.State(); st.Unstored != 3000 || !st.Synced || st.ResourceVersion != "9000" {
		t.Fatalf("%+v", st)
	}
	err := db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, s.id)
		if n := len(src.Root.Get(layout.KeyMeta)); n > 2000 {
			t.Errorf("meta has %d bytes", n)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	relistSome(t, s, "9001", RelistOptions{}, objs)
	if st := s.State(); st.Unstored != 0 || st.Objects != 3000 {
		t.Fatalf("%+v", st)
	}
}

// TestDeleteOfAnother: an object that took over a key could not be stored, and is
// deleted. Handlers know the one before it, and are told its delete.
func TestDeleteOfAnother(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	event(t, s, p, cache.Added, configMap("ns", "a", 1, nil), nil)
	next := configMap("ns", "a", 3, nil)
	next.UID = "another"
	event(t, s, p, cache.Added, next, errRefused)
	event(t, s, p, cache.Deleted, next, nil)
	for _, told := range [][]*Entry{p.entries, journalFrom(t, s, 1)} {
		obj, err := told[len(told)-1].Object()
		dead, ok := obj.(cache.DeletedFinalStateUnknown)
		if err != nil || !ok || dead.Obj.(*corev1.ConfigMap).UID != "uid-a" {
			t.Errorf("told of %v, %v", obj, err)
		}
	}
	expectNoted(t, "deleted", s)
}
