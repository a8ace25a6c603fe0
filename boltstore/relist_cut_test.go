package boltstore

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestRelistCutAtEachCommit makes the k-th transaction of a large relist the last one of the
// process, for each k. The next life has each object as it was or as it is listed, tells what
// was stored, and completes another relist, which tells the rest. No object is deleted before
// all others are stored.
func TestRelistCutAtEachCommit(t *testing.T) {
	for k := 1; ; k++ {
		path := testPath(t)
		db := openTest(t, path, Options{maxCommitBytes: 1500})
		s := claimTest(t, db, Claim{Indexers: indexers})
		srv := server{}
		for i := range 20 {
			srv.set(configMap("ns", fmt.Sprint("cm", i), i+1, map[string]string{"words": "old"}))
		}
		relist(t, s, "100", RelistOptions{}, srv.list(), 5)
		old := maps.Clone(srv)
		for _, o := range srv {
			n := o.DeepCopy()
			n.ResourceVersion, n.Data["words"] = "200", "new"
			srv.set(n)
		}
		delete(srv, "ns/cm7")
		completed := cutAfter(db, k, func() error {
			r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(runtime.Object, error) {}})
			if err != nil {
				return err
			}
			r.NewestPage("300")
			for page := range slices.Chunk(srv.list(), 5) {
				if err := r.Page(page); err != nil {
					return err
				}
			}
			_, err = r.Commit("300", time.Now())
			return err
		})
		db = openTest(t, path, Options{})
		s = claimTest(t, db, Claim{Indexers: indexers})
		if completed {
			sameObjects(t, "completed", srv.anys(), s.List())
			t.Logf("%d transactions", k-1)
			return
		}
		stored := 0
		for key, was := range old {
			obj, ok, err := s.GetByKey(key)
			switch {
			case err == nil && ok && equality.Semantic.DeepEqual(obj, was):
			case err == nil && ok && srv[key] != nil && equality.Semantic.DeepEqual(obj, srv[key]), !ok &&
				key == "ns/cm7":
				stored++
			default:
				t.Fatalf("cut after %d: %s is %v, %v, %v", k, key, obj, ok, err)
			}
		}
		if _, ok, _ := s.GetByKey("ns/cm7"); !ok && stored < 20 {
			t.Fatalf("cut after %d: an object is gone, and only %d are stored", k, stored)
		}
		if words, err := s.IndexKeys("words", "new"); err != nil || len(words) != min(stored, 19) {
			t.Fatalf("cut after %d: %d objects are new, %d in the index: %v", k, stored, len(words), err)
		}
		if s.LastStoreSyncResourceVersion() != "100" || len(journalFrom(t, s, 1)) != stored {
			t.Fatalf("cut after %d: at %s with %d entries", k, s.LastStoreSyncResourceVersion(),
				len(journalFrom(t, s, 1)))
		}
		if newest := s.metaNow().NewestPage; (newest == "300") != (stored > 0) {
			t.Fatalf("cut after %d: objects may be as new as %q", k, newest)
		}
		entries, _ := relist(t, s, "300", RelistOptions{}, srv.list(), 5)
		if len(entries) != 20-stored {
			t.Fatalf("cut after %d: then told %d", k, len(entries))
		}
		sameObjects(t, fmt.Sprint("after the list behind ", k), srv.anys(), s.List())
		if r, err := db.Check(); err != nil || !r.Sound() {
			t.Fatalf("%+v %v", r, err)
		}
		closeTest(t, db)
	}
}

var errCut = errors.New("cut")

// cutAfter runs fn on a file that fails after k transactions, as for a process that
// dies. It says whether fn completed.
func cutAfter(db *DB, k int, fn func() error) bool {
	b := db.h.swap(nil)
	db.h.swap(b)
	n := 0
	db.h.setHook(func(*bolt.Tx) error {
		if n++; n >= k {
			return errCut
		}
		return nil
	})
	err := fn()
	db.h.setHook(func(*bolt.Tx) error { return errCut })
	_ = db.commit.stop() // whatever it has left fails
	db.claims.closed = true
	_ = db.h.swap(nil).Close()
	return err == nil
}

// TestRelistCommitRetried: a relist's commit that failed can be retried, and tells the
// same as the first attempt would have.
func TestRelistCommitRetried(t *testing.T) {
	for _, commitBytes := range []int{4 << 20, 1500} {
		db := openTest(t, testPath(t), Options{maxCommitBytes: commitBytes})
		s := claimTest(t, db, Claim{})
		srv := server{}
		for i := range 20 {
			srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, nil))
		}
		relist(t, s, "100", RelistOptions{}, srv.list(), 5)
		srv.set(configMap("ns", "cm000", 200, nil))
		r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(runtime.Object, error) {}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Page(srv.list()); err != nil {
			t.Fatal(err)
		}
		n := 0
		db.h.writeMu.Lock()
		db.h.hook = func(*bolt.Tx) error {
			if n++; n == 1 {
				return errors.New("no space left on device")
			}
			return nil
		}
		db.h.writeMu.Unlock()
		if _, err := r.Commit("300", time.Now()); err == nil {
			t.Fatal("the disk did not fail")
		}
		if _, err := r.Commit("300", time.Now()); err != nil {
			t.Fatal(err)
		}
		sameObjects(t, "after", srv.anys(), s.List())
		if got := journalFrom(t, s, 1); len(got) != 1 || got[0].Key != "ns/cm000" {
			t.Fatalf("%d entries", len(got))
		}
	}
}

// TestLandedCommit: the disk reports an error after readers see the commit.
// Nothing is applied twice, and handlers are told once a later commit succeeds.
func TestLandedCommit(t *testing.T) {
	db := openTest(t, testPath(t), Options{Window: time.Millisecond})
	s := claimTest(t, db, Claim{Indexers: indexers})
	p := &testProducer{}
	s.Feed.Attach(p)
	p.add(t, s, configMap("a", "one", 1, nil))
	p.wait(t)
	n := 0
	db.h.writeMu.Lock()
	db.h.tripped = nil // the panic stands for the disk's error
	db.h.hook = func(tx *bolt.Tx) error {
		if n++; n == 1 {
			tx.OnCommit(func() { panic("EIO") })
		}
		return nil
	}
	db.h.writeMu.Unlock()
	p.add(t, s, configMap("a", "two", 2, map[string]string{"words": "w"}), configMap("a", "one", 3, nil))
	p.wait(t)
	if len(p.entries) != 3 || p.entries[1].Key != "a/two" || p.entries[2].Type != cache.Updated ||
		s.writer.stale.Load() != 0 {
		t.Fatalf("told %v, %d stale", p.entries, s.writer.stale.Load())
	}
	if st := s.State(); st.Objects != 2 || st.Seq != 3 || st.ResourceVersion != "3" {
		t.Fatalf("%+v", st)
	}
	p.add(t, s, configMap("a", "three", 4, nil))
	p.wait(t)

	r, err := s.Upstream.BeginRelist(RelistOptions{OnError: func(runtime.Object, error) {}})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Page([]runtime.Object{configMap("a", "one", 3, nil)}); err != nil {
		t.Fatal(err)
	}
	db.h.writeMu.Lock()
	n = 0
	db.h.writeMu.Unlock()
	if _, err := r.Commit("9", time.Now()); err == nil {
		t.Fatal("the disk did not fail")
	}
	entries, err := r.Commit("9", time.Now())
	if err != nil || len(entries) != 2 || s.State().Objects != 1 || s.State().Seq != 6 {
		t.Fatalf("%d entries, %+v, %v", len(entries), s.State(), err)
	}
	if rep, err := db.Check(); err != nil || !rep.Sound() {
		t.Fatalf("%+v %v", rep, err)
	}
}
