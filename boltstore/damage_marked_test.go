package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
)

// TestCompactAfterDamage: once damage has ended the writes, a compaction does not take away the mark
// that says so.
func TestCompactAfterDamage(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	s, _ := listed400(t, db)
	h, _ := claimHandler(t, s, "d")
	handled(t, h)
	_ = db.h.noted(fmt.Errorf("%w: said the test", errTripped))
	if _, err := db.Compact(context.Background(), nil); !errors.Is(err, ErrDamaged) {
		t.Error("Compact after damage:", err)
	}
	killed(t, db)
	db = openTest(t, db.path, db.opts)
	if n := len(db.AsidePaths()); n != 1 {
		t.Errorf("%d files set aside", n)
	}
	s = claimTest(t, db, Claim{Indexers: indexers})
	if h, _ = claimHandler(t, s, "d"); !resetOwed(h) {
		t.Error("no Reset is owed")
	}
}

// TestMarkedAndDamaged: an older copy with a bad page has been written over the open file, which is
// marked. The handlers of its sound sources are told a Reset, too.
func TestMarkedAndDamaged(t *testing.T) {
	path := testPath(t)
	o := Options{Window: time.Nanosecond}
	db := openTest(t, path, o)
	listed400(t, db)
	leaf := itemPages(t, db)[3]
	other := configMaps
	other.Namespace = "other"
	s := claimTest(t, db, Claim{Source: other})
	relist(t, s, "10", RelistOptions{}, []runtime.Object{configMap("other", "a", 1, nil)}, 10)
	h, _ := claimHandler(t, s, "d")
	handled(t, h)
	p := &testProducer{}
	s.Feed.Attach(p)
	older, err := os.ReadFile(path)
	must(t, err)
	event(t, s, p, cache.Added, configMap("other", "b", 11, nil), nil)
	handled(t, h)                        // it knows b
	older[leaf*os.Getpagesize()] ^= 0xff // the copy has a bad page
	overwrite(t, path, older)
	_ = db.h.update(func(*bolt.Tx) error { return nil }, nil)
	if db.h.met() == nil {
		t.Fatal("not noticed")
	}
	killed(t, db)
	db = openTest(t, path, o)
	s = claimTest(t, db, Claim{Source: other})
	h, _ = claimHandler(t, s, "d")
	// b is deleted on the server, and the server has forgotten version 10
	relist(t, s, "20", RelistOptions{}, []runtime.Object{configMap("other", "a", 1, nil)}, 10)
	if keys := keysOf(t, h); !resetOwed(h) && len(keys) == 0 {
		t.Error("the handler knows b, and is told neither its delete nor a Reset")
	}
}

// TestCheckOfAMarkedFile: a file that the next Open will set aside is not sound.
func TestCheckOfAMarkedFile(t *testing.T) {
	db := openTest(t, testPath(t), Options{})
	listed400(t, db)
	_ = db.h.noted(fmt.Errorf("%w: said the test", errTripped))
	killed(t, db)
	for _, giveWay := range []bool{false, true} {
		r, err := Open(db.path, Options{ReadOnly: true, GiveWay: giveWay})
		if err != nil {
			continue
		}
		rep, err := r.Check()
		must(t, err)
		if rep.Sound() {
			t.Error("the next Open sets the file aside, and Check says that it is sound")
		}
		must(t, r.Close())
	}
}

// TestMomentAfterSalvage: a reader that goes on from before the salvage of a file is told of an object
// that was lost and is gone, or has to begin again.
func TestMomentAfterSalvage(t *testing.T) {
	path := testPath(t)
	db := openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
	s, srv := listed400(t, db)
	leaves := itemPages(t, db)
	had := map[string]bool{}
	for _, k := range s.ListKeys() {
		had[k] = true
	}
	closeTest(t, db)
	ruin(t, path, leaves[len(leaves)/2])
	must(t, salvageAt(path, db.opts))
	db = openTest(t, path, Options{Window: time.Nanosecond, ObjectMemory: -1})
	s = claimTest(t, db, Claim{Indexers: indexers})
	for _, k := range s.ListKeys() {
		delete(had, k)
	}
	if len(had) == 0 {
		t.Fatal("nothing lost")
	}
	gone := ""
	for gone = range had {
		break
	}
	delete(srv, gone)
	relist(t, s, "600", RelistOptions{}, srv.list(), 50)
	at, _, err := s.MomentFrom("500")
	if errors.Is(err, ErrTrimmed) {
		return // the reader lists again
	}
	must(t, err)
	told := false
	for {
		e, err := s.EntriesAfter(at)
		must(t, err)
		for _, e := range e.Entries {
			told = told || e.Key == gone && e.Type == cache.Deleted
		}
		if len(e.Entries) == 0 {
			break
		}
		at = e.Next
	}
	if !told {
		t.Errorf("a watch from 500 is told nothing of %s, which is gone", gone)
	}
}
