package boltstore

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// server is a list of objects in key order.
type server map[string]*corev1.ConfigMap

func (m server) set(objs ...*corev1.ConfigMap) {
	for _, o := range objs {
		m[o.Namespace+"/"+o.Name] = o
	}
}

func (m server) list() (objs []runtime.Object) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		objs = append(objs, m[k])
	}
	return objs
}

func (m server) anys() (objs []any) {
	for _, o := range m {
		objs = append(objs, o)
	}
	return objs
}

// TestRelistIsADiff relists random servers, some in one transaction and some in a
// stage. The journal must turn the old contents into the new ones, with the delete
// before the add if the UID changed.
func TestRelistIsADiff(t *testing.T) {
	for _, commitBytes := range []int{4 << 20, 3000} {
		for seed := range uint64(5) {
			t.Run(fmt.Sprint(commitBytes, "/", seed), func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, 2))
				db := openTest(t, testPath(t), Options{maxCommitBytes: commitBytes})
				s := claimTest(t, db,
					Claim{Indexers: cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}})
				srv := server{}
				for i := range 50 {
					srv.set(configMap(fmt.Sprint("ns", i%4), fmt.Sprint("cm", i), i+1,
						map[string]string{"k": fmt.Sprint(i)}))
				}
				relist(t, s, "100", RelistOptions{}, srv.list(), 7)
				sameObjects(t, "first", srv.anys(), s.List())
				if got := journalFrom(t, s, 1); len(got) != 0 {
					t.Fatalf("the first list was journaled: %d", len(got))
				}
				for round := range 4 {
					rv := 1000 * (round + 1)
					want := map[string]string{}
					for _, k := range slices.Sorted(maps.Keys(srv)) {
						o := srv[k]
						switch r.IntN(6) {
						case 0:
							delete(srv, k)
							want[k] = "D"
						case 1:
							n := o.DeepCopy()
							n.ResourceVersion, n.Data = fmt.Sprint(rv), map[string]string{"k": fmt.Sprint(rv)}
							srv[k] = n
							want[k] = "U"
						case 2:
							n := o.DeepCopy()
							n.ResourceVersion, n.UID = fmt.Sprint(rv), types.UID(fmt.Sprint("new", rv))
							srv[k] = n
							want[k] = "DA"
						}
					}
					added := configMap("ns9", fmt.Sprint("new", round), rv, nil)
					srv.set(added)
					want["ns9/"+added.Name] = "A"
					before := s.State().Seq
					entries, res := relist(t, s, fmt.Sprint(rv), RelistOptions{}, srv.list(), 7)
					sameObjects(t, "after", srv.anys(), s.List())
					journaled := journalFrom(t, s, before+1)
					if entries != nil && len(entries) != len(journaled) {
						t.Fatalf("%d entries, %d in the journal", len(entries), len(journaled))
					}
					got := map[string]string{}
					for _, e := range journaled {
						got[e.Key] += string(e.Type[0])
					}
					if !maps.Equal(got, want) {
						t.Fatalf("journaled %v, want %v", got, want)
					}
					if res.Objects != len(srv) || s.LastStoreSyncResourceVersion() != fmt.Sprint(rv) {
						t.Fatalf("%+v at %s", res, s.LastStoreSyncResourceVersion())
					}
				}
			})
		}
	}
}

// TestRelistAfterRestore: versions have gone back, so content decides.
func TestRelistAfterRestore(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	srv := server{}
	srv.set(configMap("a", "same", 1, nil), configMap("a", "newer", 9, map[string]string{"k": "new"}),
		configMap("a", "gone", 8, nil),
		configMap("a", "twin", 7, map[string]string{"k": "file's"}))
	relist(t, s, "10", RelistOptions{}, srv.list(), 10)
	srv = server{}
	srv.set(configMap("a", "same", 1, nil), configMap("a", "newer", 3, map[string]string{"k": "old"}),
		configMap("a", "twin", 7, map[string]string{"k": "server's"}))
	entries, _ := relist(t, s, "7", RelistOptions{NewTimeline: true}, srv.list(), 10)
	sameObjects(t, "after", srv.anys(), s.List())
	got := map[string]cache.DeltaType{}
	for _, e := range entries {
		got[e.Key] = e.Type
	}
	want := map[string]cache.DeltaType{"a/newer": cache.Updated, "a/gone": cache.Deleted, "a/twin": cache.Updated}
	if !maps.Equal(got, want) {
		t.Fatalf("told %v, want %v", got, want)
	}
	if st := s.State(); st.Timeline != 1 || st.ResourceVersion != "7" {
		t.Fatalf("%+v", st)
	}
}

// TestOlderChangesAreDropped is invariant 5.
func TestOlderChangesAreDropped(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s := claimTest(t, db, Claim{})
	p := &testProducer{}
	s.Feed.Attach(p)
	feed := func(typ cache.DeltaType, obj *corev1.ConfigMap) {
		t.Helper()
		c, err := s.Feed.Prepare(typ, obj)
		if err != nil {
			t.Fatal(err)
		}
		p.put(&Batch{Changes: []*Change{c}, ResourceVersion: obj.ResourceVersion})
		s.wake(true)
		p.wait(t)
	}
	feed(cache.Added, configMap("a", "b", 10, map[string]string{"k": "10"}))
	feed(cache.Updated, configMap("a", "b", 9, map[string]string{"k": "9"}))
	feed(cache.Updated, configMap("a", "b", 10, map[string]string{"k": "10"}))
	feed(cache.Deleted, configMap("a", "b", 8, nil))
	obj, ok, err := s.GetByKey("a/b")
	if err != nil || !ok || obj.(*corev1.ConfigMap).Data["k"] != "10" || s.writer.stale.Load() != 3 {
		t.Fatalf("%v %v %v, %d dropped", obj, ok, err, s.writer.stale.Load())
	}
	opaque := configMap("a", "b", 0, map[string]string{"k": "opaque"})
	opaque.ResourceVersion = "v:abc"
	feed(cache.Updated, opaque)
	if obj, _, _ := s.GetByKey("a/b"); obj.(*corev1.ConfigMap).Data["k"] != "opaque" {
		t.Fatal("a version that cannot be compared was not taken in the order of arrival")
	}
	feed(cache.Deleted, configMap("a", "b", 11, nil))
	if _, ok, _ := s.GetByKey("a/b"); ok {
		t.Fatal("not deleted")
	}
}

// TestOutdatedIsHidden: contents of another Go type or transform are not served, but show
// which objects were deleted meanwhile.
func TestOutdatedIsHidden(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	srv := server{}
	srv.set(configMap("a", "keeps", 1, nil), configMap("a", "goes", 2, nil))
	relist(t, s, "5", RelistOptions{}, srv.list(), 10)
	closeTest(t, db)

	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{})
	s.SetTransformVersion("2")
	if s.Outdated() == "" || len(s.List()) != 0 {
		t.Fatalf("served %v", s.List())
	}
	delete(srv, "a/goes")
	relist(t, s, "6", RelistOptions{}, srv.list(), 10)
	entries := journalFrom(t, s, 1)
	if len(entries) != 1 || entries[0].Key != "a/goes" || entries[0].Type != cache.Deleted {
		t.Fatalf("told %v", entries)
	}
	if s.Outdated() != "" {
		t.Fatal(s.Outdated())
	}
	sameObjects(t, "after", srv.anys(), s.List())
}

// TestServeOutdated: on request outdated contents are served until a relist.
func TestServeOutdated(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	srv := server{}
	srv.set(configMap("a", "one", 1, map[string]string{"words": "w"}), configMap("a", "two", 2, nil))
	relist(t, s, "5", RelistOptions{}, srv.list(), 10)
	err := s.updateMeta(func(_ sourceTx, m *sourceMeta) error { m.TypeHash = "of an older build"; return nil })
	if err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{ServeOutdated: true, Indexers: indexers})
	keys, err := s.IndexKeys("words", "w")
	if s.Outdated() == "" || len(s.List()) != 2 || len(keys) != 1 || err != nil {
		t.Fatalf("%q: %d objects, index %v, %v", s.Outdated(), len(s.List()), keys, err)
	}
	relist(t, s, "6", RelistOptions{}, srv.list(), 10)
	if s.Outdated() != "" || len(s.List()) != 2 || len(journalFrom(t, s, 1)) != 0 {
		t.Fatal(s.Outdated(), len(s.List()), journalFrom(t, s, 1))
	}
}

// TestUnorderedPages: pages may come in any order, and a key more than once.
func TestUnorderedPages(t *testing.T) {
	for _, commitBytes := range []int{4 << 20, 1500} {
		db := openTest(t, testPath(t), Options{maxCommitBytes: commitBytes})
		s := claimTest(t, db, Claim{Indexers: indexers})
		srv := server{}
		for i := range 40 {
			srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"words": "old"}))
		}
		for round := range 3 {
			objs := srv.list()
			rand.New(rand.NewPCG(uint64(round), 1)).Shuffle(len(objs), func(i, j int) {
				objs[i], objs[j] = objs[j], objs[i]
			})
			relist(t, s, fmt.Sprint(100*(round+1)), RelistOptions{}, append(objs, objs[:9]...), 7)
			sameObjects(t, "after", srv.anys(), s.List())
			if r, err := db.Check(); err != nil || !r.Sound() {
				t.Fatalf("%+v %v", r, err)
			}
			if got := journalFrom(t, s, 1); round == 0 && len(got) != 0 {
				t.Fatalf("journaled %d", len(got))
			}
			delete(srv, fmt.Sprint("ns/cm", round))
			for i := 5; i < 30; i++ {
				srv.set(configMap("ns", fmt.Sprint("cm", i), 100*(round+1)+i, map[string]string{"words": "new"}))
			}
		}
	}
}

// TestIndexAddedWhileRelisting: an index that is added during a relist has all its
// objects once the relist is visible.
func TestIndexAddedWhileRelisting(t *testing.T) {
	for _, first := range []bool{true, false} {
		for _, commitBytes := range []int{4 << 20, 1500} {
			for when := range 4 {
				db := openTest(t, testPath(t), Options{maxCommitBytes: commitBytes})
				s := claimTest(t, db, Claim{})
				srv := server{}
				for i := range 20 {
					srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
				}
				if !first {
					relist(t, s, "100", RelistOptions{}, srv.list(), 5)
					for i := range 15 {
						srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+101, map[string]string{"words": "w"}))
					}
				}
				r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(runtime.Object, error) {}})
				if err != nil {
					t.Fatal(err)
				}
				for i, page := range slices.Collect(slices.Chunk(srv.list(), 5)) {
					if i == when {
						if err := s.AddIndexers(cache.Indexers{"words": indexers["words"]}); err != nil {
							t.Fatal(err)
						}
					}
					if err := r.Page(page); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := r.Commit("300", time.Now()); err != nil {
					t.Fatal(err)
				}
				if keys, err := s.IndexKeys("words", "w"); err != nil || len(keys) != 20 {
					t.Fatalf("first %v, staged above %d, before page %d: %d keys, %v", first, commitBytes, when,
						len(keys), err)
				}
				waitBuilt(t, s, "words")
				if !s.State().Synced {
					t.Fatal("not synced")
				}
			}
		}
	}
}

// TestIndexUnderTransform: indices are built although the transform is stated after the
// claim.
func TestIndexUnderTransform(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{})
	s.SetTransformVersion("1")
	srv := server{}
	for i := range 5 {
		srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"words": "w"}))
	}
	relist(t, s, "100", RelistOptions{}, srv.list(), 5)
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{Indexers: cache.Indexers{"words": indexers["words"]}})
	s.SetTransformVersion("1")
	if objs, err := s.ByIndex("words", "w"); err != nil || len(objs) != 5 {
		t.Fatal(len(objs), err)
	}
}

// TestIndexAddedToALargeList: an added index has the objects that a relist took
// earlier, even if it is committed in parts afterwards.
func TestIndexAddedToALargeList(t *testing.T) {
	s := claimTest(t, openTest(t, testPath(t), Options{maxCommitBytes: 4000}), Claim{})
	var objs []runtime.Object
	for i := range 9 {
		objs = append(objs, configMap("ns", fmt.Sprint("cm", i), i+1, nil))
	}
	relist(t, s, "10", RelistOptions{}, objs, 3)
	for i := range objs {
		objs[i] = configMap("ns", fmt.Sprint("cm", i), i+11, map[string]string{"words": "w"})
	}
	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	for i, page := range slices.Collect(slices.Chunk(objs, 1)) {
		if err := r.Page(page); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if r.found.spilled {
				t.Fatal("large already")
			}
			if err := s.AddIndexers(cache.Indexers{"words": indexers["words"]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !r.found.spilled {
		t.Fatal("not large")
	}
	if _, err := r.Commit("20", time.Now()); err != nil {
		t.Fatal(err)
	}
	if found, err := s.ByIndex("words", "w"); err != nil || len(found) != 9 {
		t.Errorf("%d of 9 objects are in the index: %v", len(found), err)
	}
}
