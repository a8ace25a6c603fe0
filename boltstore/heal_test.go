package boltstore

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	testingclock "k8s.io/utils/clock/testing"
)

// TestHeal: bbolt trips over damaged pages of an open file. Readable objects are saved,
// commits go on, and readers get one error at most. A relist brings the rest back and
// tells the deletes since then.
func TestHeal(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	for i := range 400 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": fmt.Sprint(i % 3)}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
	p := &testProducer{}
	s.Attach(p)
	p.add(t, s, configMap("ns", "before", 501, nil))
	p.wait(t)
	leaves := itemPages(t, db)
	if len(leaves) < 5 {
		t.Fatal("too few pages to ruin one of")
	}
	ruin(t, path, leaves[len(leaves)/2])

	if _, err := s.ListErr(); !errors.Is(err, ErrDamaged) {
		t.Fatal("the damage was not noticed", err)
	}
	saved := s.ListKeys()
	n := len(saved)
	if n < 300 || n > 400 {
		t.Fatalf("%d objects were saved", n)
	}
	select {
	case <-s.Damaged():
	default:
		t.Fatal("the source does not need a relist")
	}
	if s.Err() == nil || len(db.AsidePaths()) != 1 || s.State().Degraded == "" {
		t.Fatal(s.Err(), db.AsidePaths(), s.State())
	}
	p.add(t, s, configMap("ns", "after", 502, map[string]string{"words": "w"}))
	p.wait(t)
	if e := p.entries[len(p.entries)-1]; e.Seq != 2 || e.Key != "ns/after" {
		t.Fatalf("entry %+v", e)
	}
	if got := journalFrom(t, s, 1); len(got) != 2 {
		t.Fatalf("%d entries in the journal", len(got))
	}
	srv.set(configMap("ns", "before", 501, nil), configMap("ns", "after", 502, map[string]string{"words": "w"}))
	gone := saved[n/2]
	delete(srv, gone)
	relist(t, s, "600", RelistOptions{}, srv.list(), 50)
	sameObjects(t, "after", srv.anys(), s.List())
	told := map[string]cache.DeltaType{}
	for _, e := range journalFrom(t, s, 3) {
		told[e.Key] = e.Type
	}
	if told[gone] != cache.Deleted || len(told) != 401-n+1 {
		t.Fatalf("told %v, %d were saved", told, n)
	}
	if s.Err() != nil || s.State().Degraded != "" {
		t.Fatal(s.Err(), s.State().Degraded)
	}
	if r, err := db.Check(); err != nil || !r.Sound() {
		t.Fatalf("%+v %v", r, err)
	}
	closeTest(t, db)
	db = openTest(t, path, Options{})
	sameObjects(t, "reopened", srv.anys(), claimTest(t, db, Claim{Indexers: indexers}).List())
}

// TestHealWhileRelisting: a relist does not go on in another file.
func TestHealWhileRelisting(t *testing.T) {
	for _, commitBytes := range []int{4 << 20, 1500} {
		path := testPath(t)
		db := openTest(t, path, Options{maxCommitBytes: commitBytes, ObjectMemory: -1})
		s := claimTest(t, db, Claim{Indexers: indexers})
		srv := server{}
		for i := range 200 {
			srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
		}
		relist(t, s, "500", RelistOptions{}, srv.list(), 50)
		srv.set(configMap("ns", "cm000", 501, nil))
		r, err := s.BeginRelist(RelistOptions{OnError: func(_ runtime.Object, err error) { t.Error(err) }})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Page(srv.list()); err != nil {
			t.Fatal(err)
		}
		ruin(t, path, itemPages(t, db)[1])
		s.List()
		if _, err := r.Commit("502", time.Now()); !errors.Is(err, ErrReplaced) {
			t.Fatal(err)
		}
		r.Abort()
		relist(t, s, "502", RelistOptions{}, srv.list(), 50)
		sameObjects(t, "after", srv.anys(), s.List())
	}
}

// TestHealDuringReadsAndWrites is for the race detector and for deadlocks.
func TestHealDuringReadsAndWrites(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
	s := claimTest(t, db, Claim{Indexers: indexers})
	srv := server{}
	for i := range 300 {
		srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1, map[string]string{"words": "w"}))
	}
	relist(t, s, "500", RelistOptions{}, srv.list(), 50)
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
					_, _ = s.ByIndex("words", "w")
				}
			}
		})
	}
	ruin(t, path, leaf)
	deadline := time.Now().Add(time.Minute)
	for len(db.AsidePaths()) == 0 {
		if time.Now().After(deadline) {
			t.Fatal("not noticed")
		}
	}
	close(stop)
	wg.Wait()
	if err := s.Add(configMap("ns", "last", 1_000_000, nil)); err != nil {
		t.Fatal(err)
	}
	relist(t, s, "1000001", RelistOptions{}, srv.list(), 50)
	sameObjects(t, "after", srv.anys(), s.List())
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
