package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kubewake/kubewake/boltstore/internal/layout"

	"github.com/kubewake/kubewake/boltstore/internal/format"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/kubewake/kubewake/index"
)

// wantsSound wants a file without problems, but for those that the file itself
// says it has.
func wantsSound(t *testing.T, what string, db *DB) {
	t.Helper()
	r, err := db.Check()
	if err != nil || len(r.Problems) > 0 {
		t.Fatalf("%s: %+v %v", what, r, err)
	}
	for _, src := range r.Sources {
		for _, p := range src.Problems {
			if !strings.HasPrefix(p, "marked degraded") {
				t.Errorf("%s: %s", what, p)
			}
		}
	}
}

// flipNoted flips a bit of what b has of each key for which is says so.
func flipNoted(t *testing.T, b *bolt.Bucket, is func(k, v []byte) bool) {
	t.Helper()
	var keys [][]byte
	if err := b.ForEach(func(k, v []byte) error {
		if is(k, v) {
			keys = append(keys, bytes.Clone(k))
		}
		return nil
	}); err != nil || len(keys) == 0 {
		t.Fatal("nothing to flip: ", err)
	}
	for _, k := range keys {
		v := bytes.Clone(b.Get(k))
		v[len(v)-1] ^= 1
		if err := b.Put(k, v); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOwnWriteUnindexedBesideAStage: an index function that failed on what the
// program has written beside a staged list is called again once that is done.
func TestOwnWriteUnindexedBesideAStage(t *testing.T) {
	db := openTest(t, testPath(t), Options{MaxCommitBytes: 1})
	bad := []string{}
	s := claimTest(t, db, failing(&bad))
	relistSome(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)})
	r, err := s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page([]runtime.Object{configMap("ns", "a", 6, nil), configMap("ns", "b", 7, nil)}); err != nil {
		t.Fatal(err)
	}
	bad = []string{"a"}
	if err := s.Update(configMap("ns", "a", 20, nil)); err != nil {
		t.Fatal(err)
	}
	expectNoted(t, "before", s, "ns/a odd")
	if _, err := r.Commit("9", time.Now()); err != nil {
		t.Fatal(err)
	}
	expectNoted(t, "after", s, "ns/a odd")
	wantsSound(t, "committed", db)
	bad = nil
	if err := s.reindexNoted(); err != nil {
		t.Fatal(err)
	}
	if objs, err := s.ByIndex("odd", "v20"); err != nil || len(objs) != 1 {
		t.Error(objs, err)
	}
}

// TestNamelessOfAnInterruptedList: an object without a key that an interrupted
// first list has shown is known to the one that goes on from there. Its content
// is not in what is said of it.
func TestNamelessOfAnInterruptedList(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	c := Claim{KeyFunc: func(o any) (string, error) {
		k, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o)
		if k == "ns/cm1" {
			return "", errRefused
		}
		return k, err
	}}
	s := claimTest(t, db, c)
	var objs []runtime.Object
	for i := range 9 {
		objs = append(objs, configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"secret": "zq-content"}))
	}
	l := newListing(t, objs, 3)
	l.o.OnError = func(runtime.Object, error) {}
	r, from := l.begin(s)
	if err := l.read(r, from, 2); err != nil {
		t.Fatal(err)
	}
	r.Abort()
	if from := l.attempt(s, 1000); from != 2 {
		t.Fatal(from)
	}
	st := s.State()
	if s.UnstoredObjects() != 1 || !strings.Contains(st.UnstoredReason, "zq-refused") || strings.Contains(st.UnstoredReason, "zq-content") {
		t.Errorf("%+v", st)
	}
	srv := newListing(t, objs, 3)
	srv.o.OnError = l.o.OnError
	srv.attempt(s, 1000)
	if s.UnstoredObjects() != 1 {
		t.Errorf("%+v", s.State())
	}
}

// TestOwnWriteOverAHiddenRecord: the program writes and deletes an object that an
// earlier program has stored and the transform of this one refuses.
func TestOwnWriteOverAHiddenRecord(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)}
	relist(t, s, "5", RelistOptions{}, objs, 5)
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{})
	s.SetTransformVersion("2")
	relistSome(t, s, "6", RelistOptions{Transform: refusing("a")}, objs)
	expectNoted(t, "hidden", s, "ns/a at 1")
	if err := s.Add(configMap("ns", "a", 9, nil)); err != nil {
		t.Fatal(err)
	}
	wantsSound(t, "added", db)
	if err := s.Delete(configMap("ns", "a", 9, nil)); err != nil {
		t.Fatal(err)
	}
	wantsSound(t, "deleted", db)
	relistSome(t, s, "12", RelistOptions{}, objs[1:])
	wantsSound(t, "gone", db)
	j := journalFrom(t, s, 1)
	if e := j[len(j)-1]; e.Type != cache.Deleted || e.Key != "ns/a" {
		t.Errorf("%+v", e)
	}
}

// TestSalvageOfNotedRecords: a record that cannot be saved leaves neither a note
// of its indices nor an empty base.
func TestSalvageOfNotedRecords(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	bad := []string{"a"}
	s := claimTest(t, db, failing(&bad))
	relistSome(t, s, "5", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)})
	if err := s.Add(configMap("ns", "c", 9, nil)); err != nil {
		t.Fatal(err)
	}
	err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, s.id)
		flipNoted(t, src.gen(s.metaNow().Generation).Items.Bucket, func(k, v []byte) bool {
			key, _, err := format.ParseRecord(k, v)
			return err == nil && (key == "ns/a" || key == "ns/c")
		})
		return nil
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	db.heal(ErrDamaged)
	if s.Err() == nil {
		t.Error("not damaged?")
	}
	wantsSound(t, "healed", db)
	expectNoted(t, "healed", s)
	relistSome(t, s, "12", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)})
	wantsSound(t, "relisted", db)
	if s.Err() != nil {
		t.Error(s.Err())
	}
	expectNoted(t, "relisted", s, "ns/a odd")
}

// TestDamagedNote: a note that is damaged is noticed by whatever meets it, and
// hides nothing that is noted of another object.
func TestDamagedNote(t *testing.T) {
	for _, how := range []string{"event", "list", "index", "restart", "staged"} {
		t.Run(how, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{})
			bad := []string{"b"}
			s := claimTest(t, db, failing(&bad))
			p := &testProducer{}
			s.Attach(p)
			objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil), configMap("ns", "c", 3, nil)}
			relistSome(t, s, "5", RelistOptions{}, objs)
			event(t, s, p, cache.Updated, configMap("ns", "a", 6, nil), errRefused)
			expectNoted(t, "at first", s, "ns/a at 6", "ns/b odd")
			err := db.h.update(func(tx *bolt.Tx) error {
				src, _ := db.h.source(tx, s.id)
				flipNoted(t, src.gen(s.metaNow().Generation).Notes().Bucket, func(_, v []byte) bool {
					n, err := parseNote(v)
					return err == nil && n.Key == "ns/b"
				})
				return nil
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if r, err := db.Check(); err != nil || r.Sound() {
				t.Errorf("not noticed: %+v", r)
			}
			bad = nil
			switch how {
			case "event":
				event(t, s, p, cache.Updated, configMap("ns", "b", 7, nil), nil)
				objs[1] = configMap("ns", "b", 7, nil)
			case "list":
				relistSome(t, s, "10", RelistOptions{Transform: refusing("a")}, objs)
			case "index":
				if err := s.reindexNoted(); err != nil {
					t.Fatal(err)
				}
			case "restart":
				s.Release()
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = openTest(t, path, Options{})
				s = claimTest(t, db, failing(&bad))
			case "staged":
				db.opts.MaxCommitBytes = 1
				objs[2] = configMap("ns", "c", 9, nil)
				relistSome(t, s, "10", RelistOptions{Transform: refusing("a")}, objs)
			}
			if s.UnstoredObjects() == 0 && s.Err() == nil {
				t.Errorf("%d unstored, %v", s.UnstoredObjects(), s.Err())
			}
			relistSome(t, s, "11", RelistOptions{}, objs)
			wantsSound(t, "at last", db)
			if s.UnstoredObjects() != 0 || s.Err() != nil {
				t.Errorf("%d unstored, %v", s.UnstoredObjects(), s.Err())
			}
			if err := s.reindexNoted(); err != nil {
				t.Fatal(err)
			}
			expectNoted(t, "at last", s)
			if v := s.ListIndexFuncValues("odd"); len(v) != 3 {
				t.Errorf("%q", v)
			}
		})
	}
}

// TestNotesForgottenByAnOlderProgram: what an older program has forgotten could
// not be stored is read again, and what has no values is indexed again.
func TestNotesForgottenByAnOlderProgram(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	bad := []string{"b"}
	s := claimTest(t, db, failing(&bad))
	objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)}
	relistSome(t, s, "5", RelistOptions{}, objs)
	p := &testProducer{}
	s.Attach(p)
	event(t, s, p, cache.Updated, configMap("ns", "a", 6, nil), errRefused)
	if err := s.updateMeta(func(_ sourceTx, m *sourceMeta) error { m.Noted = noted{}; return nil }, nil); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	bad = nil
	s = claimTest(t, db, failing(&bad))
	if st := s.State(); st.Unstored != 1 || st.UnstoredReason == "" {
		t.Errorf("%+v", st)
	}
	if found, err := s.ByIndex("odd", "v2"); err != nil || len(found) != 1 {
		t.Error(found, err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, failing(&bad))
	if n := s.UnstoredObjects(); n != 1 {
		t.Errorf("%d in the life after that", n)
	}
	objs[0] = configMap("ns", "a", 6, nil)
	relistSome(t, s, "7", RelistOptions{}, objs)
	if n := s.UnstoredObjects(); n != 0 {
		t.Errorf("%d at last", n)
	}
}

// TestOwnWriteOverADamagedRecord: the program deletes an object whose record is
// damaged, or stores the server's answer there. Handlers are told what became of
// it by the next list.
func TestOwnWriteOverADamagedRecord(t *testing.T) {
	for _, want := range []cache.DeltaType{cache.Deleted, cache.Updated} {
		t.Run(string(want), func(t *testing.T) { ownWriteOverADamagedRecord(t, want) })
	}
}

func ownWriteOverADamagedRecord(t *testing.T, want cache.DeltaType) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)}
	relist(t, s, "5", RelistOptions{}, objs, 5)
	if err := db.h.update(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, s.id)
		flipNoted(t, src.gen(s.metaNow().Generation).Items.Bucket, func(k, v []byte) bool {
			key, _, err := format.ParseRecord(k, v)
			return err == nil && key == "ns/a"
		})
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	own, shows := s.Delete, objs[1:]
	if want == cache.Updated {
		own, objs[0], shows = s.Update, configMap("ns", "a", 6, nil), objs
	}
	if err := own(objs[0]); err != nil || s.Err() == nil {
		t.Fatal(err, s.Err())
	}
	relist(t, s, "6", RelistOptions{}, shows, 5)
	if told := journalFrom(t, s, 1); len(told) != 1 || told[0].Type != want || told[0].Key != "ns/a" {
		t.Errorf("told %+v", told)
	}
	wantsSound(t, "at last", db)
}

// TestChangeBesideADamagedBase: the program has stored a change before the
// server brought it, or something else under the same version, and what handlers
// were told is lost. They are told what the next list shows, and that is read.
func TestChangeBesideADamagedBase(t *testing.T) {
	for _, how := range []string{"claimed", "salvaged", "all gone"} {
		for _, what := range []string{"change", "other content", "new"} {
			t.Run(how+" "+what, func(t *testing.T) {
				f := newOwnTest(t, Options{Durability: Process})
				shows := at(7, "y")
				switch what {
				case "change":
					f.list(5, at(5, "x"))
					f.must(f.s.Update(at(7, "y")))
				case "other content":
					f.list(7, at(7, "y"))
					f.must(f.s.Update(at(7, "mine")))
				case "new":
					f.list(5)
					f.must(f.s.Update(at(7, "y")))
				}
				f.from = f.s.State().Seq + 1
				f.must(f.s.updateMeta(func(src sourceTx, m *sourceMeta) error {
					if how == "all gone" {
						return src.gen(m.Generation).Bucket.DeleteBucket(layout.BucketOwn)
					}
					flipNoted(t, src.gen(m.Generation).Own.Bucket, func(_, _ []byte) bool { return true })
					return nil
				}, nil))
				if how == "salvaged" {
					f.must(f.db.healNow(errors.New("a test")))
				} else {
					f.s.Release()
					f.must(f.db.Close())
					f.open()
				}
				if f.s.Err() == nil {
					t.Fatal("not noticed")
				}
				wantsSound(t, "before the list", f.db)
				f.list(9, shows)
				if err := f.s.Err(); err != nil || f.read() != "7y" || f.replay() != "7y" || f.bases() != 0 || f.s.UnstoredObjects() != 0 {
					t.Fatal(err, f.read(), f.replay(), f.bases(), f.s.UnstoredObjects())
				}
				// Without its key it is not known that something was not told.
				if got := f.told(); !strings.HasSuffix(got, "7y") && (how != "all gone" || what == "other content") {
					t.Fatalf("told %q", got)
				}
			})
		}
	}
}

// TestNewlyUnindexedInAList: a list whose content is compared, and that shows an
// object as it is in the file, notes that an index function fails on it.
func TestNewlyUnindexedInAList(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	bad := []string{"a"}
	s := claimTest(t, db, failing(&bad))
	objs := []runtime.Object{configMap("ns", "a", 1, nil), configMap("ns", "b", 2, nil)}
	relistSome(t, s, "5", RelistOptions{}, objs)
	// The note is lost, as by damage.
	if err := s.updateMeta(func(src sourceTx, m *sourceMeta) error {
		return src.gen(m.Generation).notes.put(m, index.AppendKey(nil, "ns/a"), nil, &note{Indices: []string{"odd"}})
	}, nil); err != nil {
		t.Fatal(err)
	}
	expectNoted(t, "lost", s)
	relistSome(t, s, "6", RelistOptions{Content: true}, objs)
	expectNoted(t, "listed", s, "ns/a odd")
	wantsSound(t, "listed", db)
}
