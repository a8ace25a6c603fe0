package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
)

// TestDamagedWhileOpen: bbolt trips over damaged pages of an open file. From then on nothing
// is written, and Err and Moved say so. The next Open, after Close or a kill, saves what
// verifies. A relist brings the rest back and tells the deletes since then.
func TestDamagedWhileOpen(t *testing.T) {
	for _, end := range []string{"closed", "killed"} {
		t.Run(end, func(t *testing.T) {
			path := testPath(t)
			db := openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
			s, srv := listed400(t, db)
			p := &testProducer{}
			s.Feed.Attach(p)
			p.add(t, s, configMap("ns", "before", 501, nil))
			p.wait(t)
			leaves := itemPages(t, db)
			if len(leaves) < 5 {
				t.Fatal("too few pages to ruin one of")
			}
			ruin(t, path, leaves[len(leaves)/2])
			moved := db.Moved()
			if _, err := s.ListErr(); !errors.Is(err, ErrDamaged) {
				t.Fatal("the damage was not noticed", err)
			}
			nothingIsWritten(t, db, s)
			for _, signal := range []<-chan struct{}{moved, s.Upstream.Damaged()} {
				select {
				case <-signal:
				default:
					t.Error("nobody is told")
				}
			}
			if _, first, _ := s.GetByKey("ns/cm000"); !first { // it is on the page
				if _, last, err := s.GetByKey("ns/cm399"); !last {
					t.Error("what can be read:", err)
				}
			}
			p.add(t, s, configMap("ns", "after", 502, map[string]string{"words": "w"}))
			if end == "killed" {
				killed(t, db)
			} else if err := db.Close(); !errors.Is(err, ErrDamaged) {
				t.Error("Close:", err)
			}

			db = openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
			s = claimTest(t, db, Claim{Indexers: indexers})
			saved := s.ListKeys()
			n := len(saved)
			if n < 300 || n > 400 {
				t.Fatalf("%d objects were saved", n)
			}
			if s.Err() == nil || db.Err() != nil || len(db.AsidePaths()) != 1 || s.State().Degraded == "" {
				t.Fatal(s.Err(), db.Err(), db.AsidePaths(), s.State())
			}
			if got := journalFrom(t, s, 1); len(got) != 1 {
				t.Fatalf("%d entries in the journal", len(got))
			}
			srv.set(configMap("ns", "before", 501, nil), configMap("ns", "after", 502, map[string]string{"words": "w"}))
			gone := saved[n/2]
			delete(srv, gone)
			relist(t, s, "600", RelistOptions{}, srv.list(), 50)
			sameObjects(t, "after", srv.anys(), s.List())
			told := map[string]cache.DeltaType{}
			for _, e := range journalFrom(t, s, 2) {
				told[e.Key] = e.Type
			}
			if told[gone] != cache.Deleted || len(told) != 401-n+2 {
				t.Fatalf("told %v, %d were saved", told, n)
			}
			if s.Err() != nil || s.State().Degraded != "" {
				t.Fatal(s.Err(), s.State().Degraded)
			}
		})
	}
}

// nothingIsWritten fails if db does not say that it has met damage, or writes all the same.
func nothingIsWritten(t *testing.T, db *DB, s *Claimed) {
	t.Helper()
	says := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "start the program again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	says("Err", db.Err())
	says("a write", db.h.update(func(*bolt.Tx) error { t.Error("it writes"); return nil }, nil))
	_, err := s.Upstream.BeginRelist(RelistOptions{})
	says("a relist", err)
	_, err = s.Delivery.Claim("late", func(HandlerChange) {})
	says("a handler", err)
	if all := db.AsidePaths(); len(all) > 0 {
		t.Error("set aside while it is open:", all)
	}
}

// listed400 claims the config maps, and lists 400.
func listed400(t *testing.T, db *DB) (*Claimed, server) {
	t.Helper()
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	for i := range 400 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": fmt.Sprint(i % 3)}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	return s, srv
}

// TestMarkedFile: damage that a program has met, and that is not in the file or does not show
// there, has the next Open copy what verifies, once. What is whole stays as it was, but for
// durable handlers: what they were told may be of another commit.
func TestMarkedFile(t *testing.T) {
	for what, o := range map[string]Options{"synced": {}, "without syncs": {Durability: DurabilityProcess}} {
		t.Run(what, func(t *testing.T) {
			db := openTest(t, testPath(t), o)
			s, srv := listed400(t, db)
			h, _ := claimHandler(t, s, "d")
			handled(t, h)
			db = trips(t, db)
			if n := len(db.AsidePaths()); n != 1 {
				t.Errorf("%d files set aside", n)
			}
			s = claimTest(t, db, Claim{Indexers: indexers})
			sameObjects(t, "after", srv.anys(), s.List())
			if h, _ = claimHandler(t, s, "d"); !resetOwed(h) || s.Err() != nil {
				t.Error("a Reset is owed:", resetOwed(h), s.Err())
			}
			closeTest(t, db)
			db = openTest(t, db.path, db.opts)
			if all := db.AsidePaths(); len(all) > 0 {
				t.Error("set aside again:", all)
			}
		})
	}
}

// TestDamageDuringReadsAndWrites is for the race detector and for deadlocks.
func TestDamageDuringReadsAndWrites(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
	s, srv := listed400(t, db)
	leaf := itemPages(t, db)[2]
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if w == 0 {
					_ = s.Add(configMap("ns", "new", 1000+i, nil))
				} else {
					s.List()
					_, _ = s.ByIndex("words", "1")
				}
			}
		})
	}
	ruin(t, path, leaf)
	deadline := time.Now().Add(time.Minute)
	for db.Err() == nil {
		if time.Now().After(deadline) {
			t.Fatal("not noticed")
		}
	}
	close(stop)
	wg.Wait()
	killed(t, db)
	s = claimTest(t, openTest(t, path, Options{}), Claim{Indexers: indexers})
	must(t, s.Add(configMap("ns", "last", 1_000_000, nil)))
	relist(t, s, "1000001", RelistOptions{}, srv.list(), 50)
	sameObjects(t, "after", srv.anys(), s.List())
}

// TestSalvageWholeSource: bbolt trips over a page of an index. The source is saved as it was,
// and nothing needs to be listed.
func TestSalvageWholeSource(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{ObjectMemory: -1})
	s, srv := listed400(t, db)
	ruin(t, db.path, rootPage(t, db, func(m *sourceMeta, src sourceTx) *bolt.Bucket {
		return src.contents().Indices.Open("words").Bucket
	}))
	if objs, err := s.ByIndex("words", "1"); !errors.Is(err, ErrDamaged) {
		t.Fatalf("the damage was not met: %d objects, %v", len(objs), err)
	}
	killed(t, db)
	s = claimTest(t, openTest(t, path, Options{ObjectMemory: -1}), Claim{Indexers: indexers})
	objs, err := s.ByIndex("words", "1")
	if err != nil || len(objs) != 133 || s.State().Degraded != "" || s.Err() != nil {
		t.Errorf("%d objects, %v, degraded: %q, %v", len(objs), err, s.State().Degraded, s.Err())
	}
	sameObjects(t, "saved", srv.anys(), s.List())
}

// rootPage is the page at the root of a bucket.
func rootPage(t *testing.T, db *DB, of func(m *sourceMeta, src sourceTx) *bolt.Bucket) (page int) {
	t.Helper()
	err := db.h.view(func(tx *bolt.Tx) error {
		src, _ := db.h.source(tx, configMaps.ID())
		m, err := src.meta()
		if err == nil {
			page = int(of(m, src).Root())
		}
		return err
	})
	if err != nil || page == 0 {
		t.Fatal(page, err)
	}
	return page
}

// TestSalvageTruncated: objects served from a truncated file are as stored, the source
// says what is missing, and a relist brings it back.
func TestSalvageTruncated(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	for i := range 500 {
		srv.set(configMap("ns", fmt.Sprintf("cm%04d", i), i+1, map[string]string{"words": "w"}))
	}
	relist(t, s, "5000", RelistOptions{}, srv.list(), 100)
	closeTest(t, db)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for cut := 2 * os.Getpagesize(); cut < len(whole); cut += 12 * os.Getpagesize() {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		db = openTest(t, path, Options{})
		s = claimTest(t, db, Claim{Indexers: indexers})
		objs := s.List()
		for _, o := range objs {
			want := srv[keyOfObject(o)]
			sameObjects(t, fmt.Sprint("cut at ", cut), []any{want}, []any{o})
		}
		if len(objs) < 500 && s.Err() == nil && s.State().Synced {
			t.Fatalf("cut at %d: %d objects without a word", cut, len(objs))
		}
		most = max(most, len(objs))
		relist(t, s, "5000", RelistOptions{}, srv.list(), 100)
		sameObjects(t, "after", srv.anys(), s.List())
		closeTest(t, db)
	}
	t.Logf("at most %d of 500 objects were saved", most)
}

// TestCorruptFilesAreBounded: only the newest files that were set aside stay.
func TestCorruptFilesAreBounded(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1e9, 0))
	path := filepath.Join(t.TempDir(), "odd[name]*.db")
	var names []string
	for range 6 {
		if err := os.WriteFile(path, []byte("not ours"), 0o600); err != nil {
			t.Fatal(err)
		}
		db := openTest(t, path, Options{Clock: clk, ReplaceForeign: true})
		names = append(names, db.AsidePaths()...)
		closeTest(t, db)
		clk.Step(time.Hour)
	}
	for i, name := range names {
		if _, err := os.Stat(name); (err == nil) != (i >= 3) {
			t.Fatalf("file %d of 6: %v", i, err)
		}
	}
}
