package boltstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/kubewake/kubewake/internal/leaktest"
	"github.com/kubewake/kubewake/internal/sealtest"
)

// TestGoroutines: an open file has a goroutine only while a source is claimed, whatever
// was done with it.
func TestGoroutines(t *testing.T) {
	for name, o := range map[string]Options{
		"plain": {}, "packed": {Compression: CompressionZstd}, "sealed": {Keyset: sealtest.Keyset()},
		"unsynced": {Durability: DurabilityProcess},
	} {
		t.Run(name, func(t *testing.T) {
			before := leaktest.Ours(nil)
			path := testPath(t)
			db := openTest(t, path, o)
			if now := leaktest.Ours(before); len(now) > 0 {
				t.Errorf("after Open there are %d goroutines:\n%s", len(now), strings.Join(now, "\n\n"))
			}
			for range 3 {
				s := claimTest(t, db, Claim{Indexers: indexers})
				srv := server{}
				for i := range 300 {
					srv.set(configMap("ns", fmt.Sprintf("cm%03d", i), i+1,
						map[string]string{"words": strings.Repeat("x", 100)}))
				}
				relist(t, s, "500", RelistOptions{}, srv.list(), 50)
				p := &testProducer{}
				s.Feed.Attach(p)
				p.add(t, s, configMap("ns", "one", 501, nil))
				p.wait(t)
				if len(leaktest.Ours(before)) == 0 {
					t.Error("who commits?")
				}
				s.Release()
				leaktest.None(t, "after Release", before)
			}
			if _, err := db.Compact(context.Background(), nil); err != nil && !errors.Is(err, errors.ErrUnsupported) {
				t.Error(err)
			}
			v, err := db.View(configMaps)
			if err != nil || len(v.List()) != 301 {
				t.Errorf("%v", err)
			}
			snap, err := db.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			if err := snap.Close(); err != nil {
				t.Error(err)
			}
			leaktest.None(t, "while nothing is claimed", before)
			closeTest(t, db)
			leaktest.None(t, "after Close", before)
		})
	}
}

// TestClaimsComeAndGo: the committer's goroutine begins and ends with claims, releases
// and Close. No write is lost or waits for ever.
func TestClaimsComeAndGo(t *testing.T) {
	before := leaktest.Ours(nil)
	path := testPath(t)
	for range 20 {
		db := openTest(t, path, Options{})
		done := make(chan struct{})
		for w := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				src := Source{Version: "v1", Resource: fmt.Sprint("r", w), Form: FormTyped}
				for i := range 20 {
					s, err := db.Claim(Claim{Source: src, Example: configMap("", "", 1, nil)})
					if errors.Is(err, ErrClosed) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					err = s.Add(configMap("ns", fmt.Sprint(i), i+1, nil))
					if _, ok, gerr := s.GetByKey(fmt.Sprint("ns/", i)); err == nil && gerr == nil && !ok ||
						err != nil && !errors.Is(err, ErrClosed) {
						t.Errorf("%d: %t %v", i, ok, err)
					}
					s.Release()
				}
			}()
		}
		<-done
		if err := db.Close(); err != nil { // a claim that is under way is no informer that runs
			t.Error(err)
		}
		for range 3 {
			<-done
		}
		leaktest.None(t, "after Close", before)
	}
}
