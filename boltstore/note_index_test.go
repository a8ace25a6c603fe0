package boltstore

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestIndexFunctionRecovers: a failed function is called again after one, two, four
// seconds, and so on up to ten minutes.
func TestIndexFunctionRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, testPath(t), Options{})
		defer closeTest(t, db)
		began := time.Now()
		var fail atomic.Bool
		fail.Store(true)
		var mu sync.Mutex
		var calls []time.Duration
		claim := failing(&[]string{})
		claim.Indexers["odd"] = func(o any) ([]string, error) {
			if o.(*corev1.ConfigMap).Name != "a" {
				return nil, nil
			}
			mu.Lock()
			calls = append(calls, time.Since(began).Truncate(time.Second))
			mu.Unlock()
			if fail.Load() {
				panic("on purpose")
			}
			return []string{"v"}, nil
		}
		s := claimTest(t, db, claim)
		if err := errors.Join(s.Add(configMap("ns", "a", 1, map[string]string{"words": "w"})),
			s.Add(configMap("ns", "b", 2, nil))); err != nil {
			t.Fatal(err)
		}
		// on the bubble's clock, which takes no time: tries of the index function are counted
		// meanwhile
		time.Sleep(20 * time.Minute) // on the bubble's clock, see above
		synctest.Wait()
		want := []time.Duration{0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 1023}
		for i := range want {
			want[i] *= time.Second
		}
		mu.Lock()
		if !slices.Equal(calls, want) {
			t.Errorf("called after %v, want %v", calls, want)
		}
		mu.Unlock()
		expectNoted(t, "it fails", s, "ns/a odd")
		if objs, err := s.ByIndex("words", "w"); err != nil || len(objs) != 1 {
			t.Error(len(objs), err)
		}
		fail.Store(false)
		time.Sleep(10 * time.Minute) // on the bubble's clock, which takes no time: more tries
		synctest.Wait()
		expectNoted(t, "it has recovered", s)
		if objs, err := s.ByIndex("odd", "v"); err != nil || len(objs) != 1 {
			t.Error(len(objs), err)
		}
	})
}

// TestErrOfARetriedIndex: while the values of an index function that succeeds again
// cannot be written, Err says why. Soon after they can be, they are written.
func TestErrOfARetriedIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, testPath(t), Options{})
		defer closeTest(t, db)
		var fail atomic.Bool
		fail.Store(true)
		claim := failing(&[]string{})
		claim.Indexers["odd"] = func(any) ([]string, error) {
			if fail.Load() {
				return nil, errors.New("not yet")
			}
			return []string{"v"}, nil
		}
		s := claimTest(t, db, claim)
		must(t, s.Add(configMap("ns", "a", 1, nil)))
		time.Sleep(time.Hour) // on the bubble's clock, which takes no time: more tries
		synctest.Wait()
		expectNoted(t, "it fails", s, "ns/a odd")
		if err := db.Err(); err != nil {
			t.Errorf("a failing function: %v", err)
		}
		db.h.setHook(func(*bolt.Tx) error { return errRefused })
		fail.Store(false)
		time.Sleep(mostReindex) // on the bubble's clock, which takes no time: the next try
		for range 60 {
			synctest.Wait()
			if err, st := db.Err(), db.Stats(); !errors.Is(err, errRefused) || st.Failing == 0 || st.Failed == 0 {
				t.Fatalf("Err %v, failed %d times, failing for %s", err, st.Failed, st.Failing)
			}
			time.Sleep(20 * time.Second) // on the bubble's clock, which takes no time: tries would be too early
		}
		db.h.setHook(nil)
		time.Sleep(triedAgain) // on the bubble's clock, which takes no time: the next try
		synctest.Wait()
		expectNoted(t, "it has recovered", s)
		if err, st := db.Err(), db.Stats(); err != nil || st.Failing != 0 {
			t.Errorf("afterwards: Err %v, failing for %s", err, st.Failing)
		}
	})
}

// TestErrOfALaterIndex is TestErrOfARetriedIndex for an index that is added while the
// objects are in memory: it is built in the file later.
func TestErrOfALaterIndex(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, testPath(t), Options{ObjectMemory: 1 << 20})
		defer closeTest(t, db)
		s := claimTest(t, db, Claim{})
		relist(t, s, "1", RelistOptions{}, []runtime.Object{configMap("ns", "a", 1, nil)}, 10)
		synctest.Wait()
		db.h.setHook(func(*bolt.Tx) error { return errRefused })
		must(t, s.AddIndexers(cache.Indexers{"odd": func(any) ([]string, error) { return []string{"v"}, nil }}))
		for range 60 {
			synctest.Wait()
			if err, st := db.Err(), db.Stats(); !errors.Is(err, errRefused) || st.Failing == 0 || st.Failed == 0 {
				t.Fatalf("Err %v, failed %d times, failing for %s", err, st.Failed, st.Failing)
			}
			time.Sleep(20 * time.Second) // on the bubble's clock, which takes no time: tries would be too early
		}
		db.h.setHook(nil)
		time.Sleep(triedAgain) // on the bubble's clock, which takes no time: the next try
		synctest.Wait()
		if !s.indices.built(s.metaNow(), "odd") {
			t.Error("it is not built")
		}
		if err, st := db.Err(), db.Stats(); err != nil || st.Failing != 0 {
			t.Errorf("afterwards: Err %v, failing for %s", err, st.Failing)
		}
	})
}

// TestIndexNoLongerAsked: an index whose function has failed is built again when a program
// uses it again.
func TestIndexNoLongerAsked(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	bad := []string{"a"}
	s := claimTest(t, db, failing(&bad))
	if err := errors.Join(s.Add(configMap("ns", "a", 1, nil)), s.Add(configMap("ns", "b", 2, nil))); err != nil {
		t.Fatal(err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	claimTest(t, db, Claim{})
	closeTest(t, db)
	db = openTest(t, path, Options{})
	bad = nil
	s = claimTest(t, db, failing(&bad))
	indexAgain(t, s)
	if objs, err := s.ByIndex("odd", "v1"); err != nil || len(objs) != 1 {
		t.Error(len(objs), err)
	}
}

// TestUnindexedOfADroppedIndex: the failures of an index that the program has given up do not
// count once an object is stored without it.
func TestUnindexedOfADroppedIndex(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	bad := errors.New("bad")
	s := claimTest(t, db, Claim{Indexers: cache.Indexers{"x": func(any) ([]string, error) { return nil, bad }}})
	srv := server{}
	srv.set(configMap("ns", "a", 1, nil))
	relist(t, s, "100", RelistOptions{}, srv.list(), 20)
	closeTest(t, db)
	db = openTest(t, path, Options{})
	s = claimTest(t, db, Claim{})
	srv.set(configMap("ns", "a", 200, map[string]string{"a": "b"}))
	relist(t, s, "200", RelistOptions{Content: true}, srv.list(), 20)
	if st := s.State(); st.Unindexed != 0 {
		t.Error("the program has no such index, and lacks ", st.Unindexed)
	}
}

// TestEmptiedWhileIndexed: the source is emptied while an index is built again.
func TestEmptiedWhileIndexed(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	var s *Claimed
	fail := true
	hook := func() {}
	s = claimTest(t, db, Claim{Indexers: cache.Indexers{"x": func(any) ([]string, error) {
		hook()
		if fail {
			return nil, errors.New("bad")
		}
		return nil, nil
	}}, IndexVersions: map[string]string{"x": "1"}})
	srv := server{}
	srv.set(configMap("ns", "a", 1, nil))
	relist(t, s, "100", RelistOptions{}, srv.list(), 20)
	fail = false
	once := false
	hook = func() {
		if !once {
			once = true
			must(t, s.Upstream.Empty())
		}
	}
	must(t, s.builder.now(s.indices.set().fns))
	if st := s.State(); st.Unindexed != 0 {
		t.Error("lacks ", st.Unindexed)
	}
}
