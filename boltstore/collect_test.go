package boltstore

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
	testingclock "k8s.io/utils/clock/testing"
)

func inNamespace(ns string) Source {
	s := configMaps
	s.Namespace = ns
	return s
}

func sources(t testing.TB, db *DB) (names []string) {
	t.Helper()
	states, err := db.States()
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range states {
		names = append(names, st.Source.Namespace)
	}
	return names
}

// TestClaimedIsNoted: the time of a claim's use is updated at most once an hour, and
// without its own commit as long as there are others.
func TestClaimedIsNoted(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	path := testPath(t)
	db := openTest(t, path, Options{Clock: clk, Window: time.Nanosecond})
	s := claimTest(t, db, Claim{})
	for _, step := range []struct{ after, claimed time.Duration }{
		{0, 0}, {time.Minute, 0}, {58 * time.Minute, 0}, {time.Minute, time.Hour}, {time.Hour, 2 * time.Hour},
	} {
		clk.Step(step.after)
		if err := s.Add(configMap("a", "b", 1, nil)); err != nil {
			t.Fatal(err)
		}
		if got := s.State().Claimed.Sub(time.Unix(1_000_000, 0)); got != step.claimed {
			t.Fatalf("claimed after %v, not %v", got, step.claimed)
		}
	}
	// A claim without any change is noted at its end.
	closeTest(t, db)
	clk.Step(48 * time.Hour)
	db = openTest(t, path, Options{Clock: clk})
	s = claimTest(t, db, Claim{})
	s.Release()
	states, err := db.States()
	if err != nil || !states[0].Claimed.Equal(clk.Now()) {
		t.Fatalf("%+v %v", states, err)
	}
}

// idle is a producer without changes.
type idle struct{}

func (idle) Take(int, bool) (*Batch, bool) { return nil, false }
func (idle) Committed([]*Entry)            {}

// TestClaimedIsFlushed: the use of a claim without changes is noted, too, whoever fills the
// source. So what a program only reads is not collected after a crash.
func TestClaimedIsFlushed(t *testing.T) {
	for name, p := range map[string]Producer{"a producer": idle{}, "the program": nil} {
		t.Run(name, func(t *testing.T) {
			begun := time.Unix(1_000_000, 0)
			clk := testingclock.NewFakeClock(begun)
			db := openTest(t, testPath(t), Options{Clock: clk})
			s := claimTest(t, db, Claim{})
			if p != nil {
				s.Feed.Attach(p)
			}
			clk.Step(time.Hour)
			eventually(t, "noted", func() bool {
				clk.Step(5 * time.Second) // FlushInterval
				return !s.State().Claimed.Before(begun.Add(time.Hour))
			})
		})
	}
}

// TestClaimsAreNotedTogether: sources that were claimed at different times share the
// commits that note their use, so that an idle file is seldom written.
func TestClaimsAreNotedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := openTest(t, testPath(t), Options{Durability: DurabilityProcess})
		defer closeTest(t, db)
		var all []*Claimed
		for i := range 10 {
			all = append(all, claimTest(t, db, Claim{Source: inNamespace(fmt.Sprint("ns", i))}))
			// on the bubble's clock, which takes no time: the sources are claimed at different
			// times
			time.Sleep(5 * time.Minute) // on the bubble's clock, see above
		}
		before := db.Stats().Transactions.Count()
		time.Sleep(24 * time.Hour) // on the bubble's clock, which takes no time: the day in which claims are noted
		if n := db.Stats().Transactions.Count() - before; n < 23 || n > 25 {
			t.Errorf("%d transactions in a day", n)
		}
		for _, s := range all {
			if age := time.Since(s.State().Claimed); age > time.Hour+time.Minute {
				t.Errorf("%s: last noted %s ago", s.Source(), age)
			}
			s.Release()
		}
	})
}

// TestCollects: unclaimed sources are removed after the given time. Claimed sources stay, whatever the file says.
func TestCollects(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	path := testPath(t)
	o := Options{Clock: clk, Window: time.Nanosecond, CollectAfter: 100 * time.Hour, maxCommitBytes: 4096}
	db := openTest(t, path, o)
	for _, ns := range []string{"a", "b", "c"} {
		s := claimTest(t, db, Claim{Source: inNamespace(ns), Indexers: indexers})
		for i := range 50 {
			if err := s.Add(configMap(ns, fmt.Sprint("o", i), i+1,
				map[string]string{"words": "x,y", "long": fmt.Sprintf("%0500d", i)})); err != nil {
				t.Fatal(err)
			}
		}
		if ns == "c" {
			must(t, s.Upstream.Empty())
		}
	}
	closeTest(t, db)

	clk.Step(101 * time.Hour)
	db = openTest(t, path, o)
	a := claimTest(t, db, Claim{Source: inNamespace("a"), Indexers: indexers}) // not noted yet, but claimed
	tick := func(d time.Duration) {
		t.Helper()
		clk.Step(d)
		if err := a.Add(configMap("a", "o0", 100, nil)); err != nil {
			t.Fatal(err)
		}
		kept(t, db)
	}
	tick(59 * time.Minute)
	if got := sources(t, db); len(got) != 3 {
		t.Fatalf("collected in the first hour: %v", got)
	}
	tick(time.Minute)
	if got := sources(t, db); len(got) != 1 || got[0] != "a" {
		t.Fatalf("left %v", got)
	}
	if len(a.List()) != 50 {
		t.Fatal("a claimed source lost objects")
	}
	b := claimTest(t, db, Claim{Source: inNamespace("b")})
	if b.State().Synced || len(b.List()) != 0 {
		t.Fatal("what was collected is back")
	}
}

// TestCollectCut crashes a collection at each of its commits. The file stays sound, the
// source is whole or gone, and the next collection finishes the work.
func TestCollectCut(t *testing.T) {
	for k := 1; ; k++ {
		clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
		path := testPath(t)
		o := Options{Clock: clk, CollectAfter: -1, maxCommitBytes: 2048} // not by itself
		db := openTest(t, path, o)
		s := claimTest(t, db, Claim{Source: inNamespace("a"), Indexers: indexers})
		fill(t, s, 40, 2)
		s.Release()
		clk.Step(2 * time.Hour)
		db.h.writeMu.Lock()
		n := 0
		db.h.hook = func(*bolt.Tx) error {
			if n++; n >= k {
				return errCut
			}
			return nil
		}
		db.h.writeMu.Unlock()
		_, err := db.collecting().collect(t.Context(), time.Hour)
		done := err == nil
		_ = db.commit.stop()
		db.claims.closed = true
		_ = db.h.swap(nil).Close() // killed
		db = openTest(t, path, o)
		if n := len(sources(t, db)); n == 1 {
			if v, err := db.View(inNamespace("a")); err != nil || len(v.List()) != 20 {
				t.Fatalf("cut at %d: half a source: %v", k, err)
			}
		}
		// It is claimed and filled again.
		s = claimTest(t, db, Claim{Source: inNamespace("a"), Indexers: indexers})
		fill(t, s, 40, 2)
		s.Release()
		clk.Step(2 * time.Hour)
		if _, err := db.collecting().collect(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		if len(sources(t, db)) != 0 {
			t.Fatalf("cut at %d: left %v", k, sources(t, db))
		}
		closeTest(t, db)
		if done {
			if k < 2 {
				t.Fatalf("only %d commits", k)
			}
			return
		}
	}
}

func TestCollectOffline(t *testing.T) {
	clk := testingclock.NewFakeClock(time.Unix(1_000_000, 0))
	path := testPath(t)
	db := openTest(t, path, Options{Clock: clk})
	fill(t, claimTest(t, db, Claim{Source: inNamespace("a")}), 100, 2)
	closeTest(t, db)
	clk.Step(time.Hour)
	for _, tc := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {2 * time.Hour, 0}, {time.Minute, 1}} {
		c, err := Compact(t.Context(), path, Options{Clock: clk, CollectAfter: tc.after}, nil)
		if err != nil || len(c.Collected) != tc.want {
			t.Fatalf("%+v %v", c, err)
		}
		if tc.want == 1 && (c.Collected[0].Objects != 50 || c.Collected[0].Source.Namespace != "a" ||
			c.After >= c.Before) {
			t.Fatalf("%+v", c)
		}
	}
}
